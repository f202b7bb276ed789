#!/bin/sh
# A decoder process that breaks the protocol, in the way that the name of the link to it says. It
# has its connection as standard input.

ready='\201\000\000\000\001\000\000\000\000'
case "${0##*/}" in
ends) exit 0 ;;
no-hello) printf '\202\000\000\000\000\000\000\000\000' >&0 ;;
unknown) printf "$ready"'\007\007\007\007\007\007\007\007\007' >&0 ;;
# 8192x8192
large) printf "$ready"'\203\000\000\040\000\000\000\040\000' >&0 ;;
again) printf "$ready$ready" >&0 ;;
# Neither reads nor ends.
deaf) exec sleep 1000 ;;
# A byte of the reply every second.
slow)
    printf "$ready" >&0
    while printf '\000' >&0; do sleep 1; done
    ;;
esac
cat <&0 >/dev/null
