package main

import (
	"errors"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/twcc"
	"github.com/pion/rtcp"
)

// A receiver is pion's author of transport-wide feedback.
type receiver struct {
	author interceptor.Interceptor
	stream interceptor.RTPReader
	// arrived is what the stream is about to read.
	arrived []byte
	buffer  []byte
}

func newReceiver(interval time.Duration, out *outbox) (*receiver, error) {
	factory, err := twcc.NewSenderInterceptor(
		twcc.SendInterval(interval),
		twcc.WithLoggerFactory(silence()),
	)
	if err != nil {
		return nil, err
	}
	author, err := factory.NewInterceptor("")
	if err != nil {
		return nil, err
	}
	send := func(packets []rtcp.Packet, _ interceptor.Attributes) (int, error) {
		datagram, err := rtcp.Marshal(packets)
		if err != nil {
			return 0, err
		}
		out.put(datagram)
		return len(datagram), nil
	}
	author.BindRTCPWriter(interceptor.RTCPWriterFunc(send))
	r := &receiver{author: author, buffer: make([]byte, 2048)}
	read := func(buffer []byte, _ interceptor.Attributes) (int, interceptor.Attributes, error) {
		return copy(buffer, r.arrived), interceptor.Attributes{}, nil
	}
	r.stream = author.BindRemoteStream(streamInfo(), interceptor.RTPReaderFunc(read))
	return r, nil
}

func (r *receiver) frame(uint32, []uint16) error {
	return errors.New("a receiver sends no frames")
}

func (r *receiver) datagram(datagram []byte) error {
	r.arrived = datagram
	_, _, err := r.stream.Read(r.buffer, interceptor.Attributes{})
	return err
}

func (r *receiver) target() int { return 0 }

func (r *receiver) close() error { return r.author.Close() }
