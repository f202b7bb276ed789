package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A conversation puts questions to a program that serves on the other side of two pipes.
type conversation struct {
	t         *testing.T
	questions *io.PipeWriter
	answers   *io.PipeReader
	ended     chan error
}

func converse(t *testing.T, open func(*outbox) (end, error)) *conversation {
	in, questions := io.Pipe()
	answers, out := io.Pipe()
	c := &conversation{t: t, questions: questions, answers: answers, ended: make(chan error, 1)}
	go func() { c.ended <- serve(in, out, open) }()
	return c
}

// ask returns the target and the datagrams, or the complaint.
func (c *conversation) ask(kind byte, at time.Duration, content []byte) (int, [][]byte, string) {
	c.t.Helper()
	asked := binary.LittleEndian.AppendUint64([]byte{kind}, uint64(at))
	asked = binary.LittleEndian.AppendUint32(asked, uint32(len(content)))
	if _, err := c.questions.Write(append(asked, content...)); err != nil {
		c.t.Fatal(err)
	}
	target := binary.LittleEndian.Uint64(c.read(8))
	count := binary.LittleEndian.Uint32(c.read(4))
	if count&(1<<31) != 0 {
		return int(target), nil, string(c.read(int(count &^ (1 << 31))))
	}
	var datagrams [][]byte
	for range count {
		datagrams = append(datagrams, c.read(int(binary.LittleEndian.Uint32(c.read(4)))))
	}
	return int(target), datagrams, ""
}

func (c *conversation) read(length int) []byte {
	c.t.Helper()
	got := make([]byte, length)
	if _, err := io.ReadFull(c.answers, got); err != nil {
		c.t.Fatal(err)
	}
	return got
}

func (c *conversation) end() error {
	c.questions.Close()
	return <-c.ended
}

// frame describes one of these payloads.
func frame(sizes ...uint16) []byte {
	content := make([]byte, 4)
	for _, size := range sizes {
		content = binary.LittleEndian.AppendUint16(content, size)
	}
	return content
}

func TestTheMedia_GoThroughThePacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(out *outbox) (end, error) {
			return newSender(rates{300_000, 150_000, 5_000_000}, out)
		})
		target, sent, _ := c.ask('f', 0, frame(1100, 500))
		if target != 300_000 || len(sent) != 0 {
			t.Errorf("target %d and %d datagrams before the pacer's tick", target, len(sent))
		}
		_, sent, _ = c.ask('w', 5*time.Millisecond, nil)
		// Header, extension and payload.
		if len(sent) != 1 || len(sent[0]) != 12+8+1100 {
			t.Fatalf("the first tick released %d datagrams", len(sent))
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestAReport_ComesAnIntervalAfterTheFirstPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(out *outbox) (end, error) {
			return newSender(rates{300_000, 150_000, 5_000_000}, out)
		}
		from := converse(t, open)
		from.ask('f', 0, frame(1000))
		_, sent, _ := from.ask('w', 5*time.Millisecond, nil)
		if len(sent) != 1 {
			t.Fatalf("%d datagrams", len(sent))
		}
		to := converse(t, func(out *outbox) (end, error) {
			return newReceiver(50*time.Millisecond, out)
		})
		to.ask('d', 20*time.Millisecond, sent[0])
		_, reports, complaint := to.ask('w', 70*time.Millisecond, nil)
		if len(reports) != 1 {
			t.Fatalf("%d reports; %s", len(reports), complaint)
		}
		if _, _, complaint := from.ask('d', 90*time.Millisecond, reports[0]); complaint != "" {
			t.Error(complaint)
		}
		if err := errors.Join(from.end(), to.end()); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatWasSentUnasked_IsAComplaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := converse(t, func(out *outbox) (end, error) {
			return newSender(rates{300_000, 150_000, 5_000_000}, out)
		})
		c.ask('f', 0, frame(1000))
		_, _, complaint := c.ask('w', 7*time.Millisecond, nil)
		if want := "the library sent 2ms before it was asked"; complaint != want {
			t.Errorf("%q instead of %q", complaint, want)
		}
		if err := c.end(); err == nil {
			t.Error("it went on")
		}
	})
}

func TestNonsense_IsAComplaint(t *testing.T) {
	for _, nonsense := range []struct {
		kind    byte
		content []byte
		want    string
	}{
		{'x', nil, "no question 'x'"},
		{'f', []byte{1, 2, 3, 4, 5}, "no whole sizes"},
		{'d', []byte{1, 2, 3}, "rtcp"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := converse(t, func(out *outbox) (end, error) {
				return newSender(rates{300_000, 150_000, 5_000_000}, out)
			})
			_, _, complaint := c.ask(nonsense.kind, 0, nonsense.content)
			if !strings.Contains(complaint, nonsense.want) {
				t.Errorf("%q does not say %q", complaint, nonsense.want)
			}
			c.end()
		})
	}
}

func TestAnEarlyEnd_IsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		err := serve(strings.NewReader("w2345"), &out, func(box *outbox) (end, error) {
			return newReceiver(time.Second, box)
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}
