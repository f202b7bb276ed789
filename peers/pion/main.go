// Program pion-gcc runs one end of a stream under pion's GCC on a clock that it is told to move.
//
//	pion-gcc sender FIRST LEAST MOST   rates in b/s
//	pion-gcc receiver INTERVAL         between reports, in ms
//	pion-gcc version                   of the library
//
// It reads questions from standard input and writes an answer to each to standard output, until
// the input ends; wire.go has their format. peers/rust/src/pion.rs is the other side.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

func main() {
	// For a run to be the same again, one goroutine runs at a time, and garbage is collected when
	// serve says so: a collection in between changes whose turn is next.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say sender, receiver or version")
	}
	numbers, err := numbers(args[1:])
	if err != nil {
		return err
	}
	switch role := args[0]; {
	case role == "sender" && len(numbers) == 3:
		return inBubble(func() error {
			return serve(os.Stdin, os.Stdout, func(out *outbox) (end, error) {
				return newSender(rates{numbers[0], numbers[1], numbers[2]}, out)
			})
		})
	case role == "receiver" && len(numbers) == 1:
		return inBubble(func() error {
			return serve(os.Stdin, os.Stdout, func(out *outbox) (end, error) {
				return newReceiver(time.Duration(numbers[0])*time.Millisecond, out)
			})
		})
	case role == "version" && len(numbers) == 0:
		fmt.Println(version())
		return nil
	default:
		return fmt.Errorf("no such role, or not as many numbers as it needs: %v", args)
	}
}

func numbers(args []string) ([]int, error) {
	var found []int
	for _, arg := range args {
		number, err := strconv.Atoi(arg)
		if err != nil || number <= 0 {
			return nil, fmt.Errorf("%q is not a number above zero", arg)
		}
		found = append(found, number)
	}
	return found, nil
}

func version() string {
	const module = "github.com/pion/interceptor"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return "pion/interceptor " + dependency.Version
			}
		}
	}
	return "pion/interceptor of unknown version"
}
