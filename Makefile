# `make demo` and `make test` install what is missing (see scripts/setup), say so before they do,
# and go on. Nothing asks questions, but for sudo's password where there is a terminal to type it.

# More words for the demo, e.g. make demo DEMO="--sim".
DEMO ?=
# How long each target is fuzzed.
FUZZ_SECONDS ?= 20
# What other projects' controllers are played on; which of them, e.g. make peers PEERS="quinn-bbr".
SCENARIOS ?=
PEERS ?=

# Where to install, if not to /usr/local; below which folder, for packages; what was built already.
export PREFIX DESTDIR LIBDIR INCLUDEDIR BINDIR BUILT

.PHONY: help demo test check bench bench-emulator bench-events bench-sim fuzz peers install uninstall clean

help:
	@echo 'make demo    live video over a bad network, with Tidegate and without; names a report'
	@echo 'make test    every test'
	@echo 'make check   format, lints, docs, licences, sizes and what else is not a test'
	@echo 'make bench   what a controller step and a packet cost'
	@echo 'make bench-emulator'
	@echo '             the emulator in pairs with a plain forwarder in C (root or user namespaces)'
	@echo 'make bench-events'
	@echo '             how late events of the kernel'\''s TCP are, and what they cost (root)'
	@echo 'make bench-sim'
	@echo '             the simulator in pairs with ns-2 where that is installed, and with many flows'
	@echo 'make fuzz    $(FUZZ_SECONDS) s of fuzzing per wire format'
	@echo 'make peers   other projects'\'' controllers on SCENARIOS; results go to runs/peers'
	@echo 'make install the program, the C header and the shared library, below PREFIX (/usr/local);'
	@echo '             DESTDIR and make uninstall as usual'
	@echo 'make clean   removes what was built; runs stay'

demo:
	@scripts/demo $(DEMO)

test:
	@scripts/test

check:
	@scripts/check

bench:
	@scripts/bench

bench-emulator:
	@scripts/bench-emulator

bench-events:
	@scripts/bench-events

bench-sim:
	@scripts/bench-sim

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)

peers:
	@PEERS="$(PEERS)" scripts/peers $(SCENARIOS)

install:
	@scripts/install

uninstall:
	@scripts/install --remove

clean:
	@scripts/clean
