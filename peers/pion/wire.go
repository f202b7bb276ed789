package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing/synctest"
	"time"
)

// An end is what questions are put to.
type end interface {
	// frame sends a frame with the given RTP time in payloads of these sizes.
	frame(timestamp uint32, payloads []uint16) error
	// datagram takes what arrived.
	datagram(datagram []byte) error
	// target is the controller's rate in b/s, 0 at a receiver.
	target() int
	close() error
}

// An outbox keeps what the library sends. The library's goroutines take turns with the one that
// empties it, as synctest.Wait lies between.
type outbox struct {
	datagrams [][]byte
	// latest is when the last was put in.
	latest time.Time
	// late is set when an earlier one was put in at another moment.
	late error
}

func (o *outbox) put(datagram []byte) {
	now := time.Now()
	if len(o.datagrams) > 0 && !o.latest.Equal(now) {
		o.late = fmt.Errorf("the library sent at a moment when nobody asked, %v before", now.Sub(o.latest))
	}
	o.latest = now
	o.datagrams = append(o.datagrams, datagram)
}

// take empties the box, whose content has to be of this moment.
func (o *outbox) take() ([][]byte, error) {
	if o.late != nil {
		return nil, o.late
	}
	if now := time.Now(); len(o.datagrams) > 0 && !o.latest.Equal(now) {
		return nil, fmt.Errorf("the library sent %v before it was asked", now.Sub(o.latest))
	}
	datagrams := o.datagrams
	o.datagrams = nil
	return datagrams, nil
}

// A question in its fixed part, little-endian; as many bytes follow as Length says.
type question struct {
	Kind byte
	// Since the start of the program's clock, in nanoseconds. Never goes back.
	At     uint64
	Length uint32
}

// serve answers questions until there are no more. An answer is the target, the number of
// datagrams, and each of them behind its length; instead of the number there may be the length of
// a complaint with the highest bit set, and its text.
func serve(in io.Reader, out io.Writer, open func(*outbox) (end, error)) error {
	zero := time.Now()
	box := &outbox{}
	library, err := open(box)
	if err != nil {
		return err
	}
	questions, answers := bufio.NewReader(in), bufio.NewWriter(out)
	for count := 1; ; count++ {
		if count%questionsPerCollection == 0 {
			runtime.GC()
		}
		bytes, asked, err := read(questions)
		if errors.Is(err, io.EOF) {
			return library.close()
		}
		if err == nil {
			// What the library does at this moment by itself comes first.
			time.Sleep(time.Until(zero.Add(time.Duration(asked.At))))
			synctest.Wait()
			err = put(library, asked.Kind, bytes)
			synctest.Wait()
		}
		var datagrams [][]byte
		if err == nil {
			datagrams, err = box.take()
		}
		if err := write(answers, library.target(), datagrams, err); err != nil {
			return err
		}
		if err != nil {
			return errors.Join(err, library.close())
		}
	}
}

func put(library end, kind byte, bytes []byte) error {
	switch kind {
	case 'w':
		return nil
	case 'd':
		return library.datagram(bytes)
	case 'f':
		if len(bytes) < 4 || len(bytes)%2 != 0 {
			return fmt.Errorf("a frame of %d bytes has no whole sizes", len(bytes))
		}
		var payloads []uint16
		for sizes := bytes[4:]; len(sizes) > 0; sizes = sizes[2:] {
			payloads = append(payloads, binary.LittleEndian.Uint16(sizes))
		}
		return library.frame(binary.LittleEndian.Uint32(bytes), payloads)
	default:
		return fmt.Errorf("there is no question %q", kind)
	}
}

func read(in io.Reader) ([]byte, question, error) {
	var asked question
	if err := binary.Read(in, binary.LittleEndian, &asked); err != nil {
		return nil, asked, err
	}
	bytes := make([]byte, asked.Length)
	_, err := io.ReadFull(in, bytes)
	return bytes, asked, err
}

func write(out *bufio.Writer, target int, datagrams [][]byte, complaint error) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(target))
	if complaint != nil {
		datagrams = nil
		text := complaint.Error()
		head = binary.LittleEndian.AppendUint32(head, 1<<31|uint32(len(text)))
		head = append(head, text...)
	} else {
		head = binary.LittleEndian.AppendUint32(head, uint32(len(datagrams)))
	}
	if _, err := out.Write(head); err != nil {
		return err
	}
	for _, datagram := range datagrams {
		length := binary.LittleEndian.AppendUint32(nil, uint32(len(datagram)))
		if _, err := out.Write(append(length, datagram...)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// The program stays at some 25 MB with it, at 10 Mb/s.
const questionsPerCollection = 1000
