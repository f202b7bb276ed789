package main

import (
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/gcc"
	"github.com/pion/logging"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
)

// Rates in b/s: from which the estimator starts, and between which it stays.
type rates struct{ first, least, most int }

// A sender is pion's estimator with its own pacer and one stream.
type sender struct {
	estimator *gcc.SendSideBWE
	stream    interceptor.RTPWriter
	sequence  uint16
}

func newSender(limits rates, out *outbox) (*sender, error) {
	estimator, err := gcc.NewSendSideBWE(
		gcc.SendSideBWEInitialBitrate(limits.first),
		gcc.SendSideBWEMinBitrate(limits.least),
		gcc.SendSideBWEMaxBitrate(limits.most),
		gcc.WithLoggerFactory(silence()),
	)
	if err != nil {
		return nil, err
	}
	send := func(header *rtp.Header, payload []byte, _ interceptor.Attributes) (int, error) {
		packet := rtp.Packet{Header: *header, Payload: payload}
		datagram, err := packet.Marshal()
		if err != nil {
			return 0, err
		}
		out.put(datagram)
		return len(datagram), nil
	}
	stream := estimator.AddStream(streamInfo(), interceptor.RTPWriterFunc(send))
	return &sender{estimator: estimator, stream: stream}, nil
}

func (s *sender) frame(timestamp uint32, payloads []uint16) error {
	for i, size := range payloads {
		header := &rtp.Header{
			Version:        2,
			Marker:         i == len(payloads)-1,
			PayloadType:    payloadType,
			SequenceNumber: s.sequence,
			Timestamp:      timestamp,
			SSRC:           ssrc,
		}
		number := rtp.TransportCCExtension{TransportSequence: s.sequence}
		extension, err := number.Marshal()
		if err != nil {
			return err
		}
		if err := header.SetExtension(extensionID, extension); err != nil {
			return err
		}
		if _, err := s.stream.Write(header, make([]byte, size), interceptor.Attributes{}); err != nil {
			return err
		}
		s.sequence++
	}
	return nil
}

func (s *sender) datagram(datagram []byte) error {
	packets, err := rtcp.Unmarshal(datagram)
	if err != nil {
		return err
	}
	return s.estimator.WriteRTCP(packets, nil)
}

func (s *sender) target() int { return s.estimator.GetTargetBitrate() }

func (s *sender) close() error { return s.estimator.Close() }

// streamInfo describes the stream to both ends.
func streamInfo() *interceptor.StreamInfo {
	return &interceptor.StreamInfo{
		SSRC: ssrc,
		RTPHeaderExtensions: []interceptor.RTPHeaderExtension{
			{URI: extensionURI, ID: extensionID},
		},
	}
}

// silence keeps the library from writing where answers go.
func silence() logging.LoggerFactory {
	factory := logging.NewDefaultLoggerFactory()
	factory.DefaultLogLevel = logging.LogLevelDisabled
	return factory
}

const (
	ssrc        = 42
	payloadType = 96
	extensionID = 5
	// By which the library knows the extension with transport-wide numbers.
	extensionURI = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
)
