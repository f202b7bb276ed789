package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

// inBubble runs f where time stands still unless every goroutine waits for it, and then ends the
// program.
//
// Go offers such bubbles to tests only, so f becomes one, the only one of this program.
func inBubble(f func() error) error {
	testing.Init()
	// The words on the command line are not the test's.
	if err := flag.CommandLine.Parse(nil); err != nil {
		return err
	}
	test := func(t *testing.T) {
		var failure error
		synctest.Test(t, func(*testing.T) { failure = f() })
		if failure != nil {
			fmt.Fprintln(os.Stderr, failure)
			os.Exit(1)
		}
		// Before the framework says that the test has passed, where nobody wants to know it.
		os.Exit(0)
	}
	anyName := func(string, string) (bool, error) { return true, nil }
	testing.Main(anyName, []testing.InternalTest{{Name: "bubble", F: test}}, nil, nil)
	return nil
}
