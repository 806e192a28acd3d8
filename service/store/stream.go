package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamConfig describes a stream; the zero value is the usual one.
type streamConfig struct {
	// window is the time for which message ids are remembered, at 330 bytes of the broker's
	// memory each. Default 30 s.
	window time.Duration
	// maxBytes limits the stream; a write beyond it fails with ErrFull. Default: none.
	maxBytes int64
}

type streamInfo struct {
	count, bytes uint64 // messages, and their size as stored, with headers
	last         uint64 // sequence of the last message ever; 0 before the first
}

// Message is one stored message, of a stream or the ledger.
type Message struct {
	Seq    uint64
	Suffix string // "" in the ledger
	ID     string // the id given to Append; "" in the ledger
	Data   []byte
}

func (s *Store) logName(name string) string { return s.config.Domain + "_log_" + name }

func (s *Store) logSubject(name, suffix string) string {
	if suffix == "" {
		suffix = "_"
	}
	return s.config.Domain + ".log." + name + "." + suffix
}

func (s *Store) suffixOf(name, subject string) string {
	suffix := strings.TrimPrefix(subject, s.config.Domain+".log."+name+".")
	if suffix == "_" {
		return ""
	}
	return suffix
}

// checkSuffix allows subject tokens, and wildcards only in a reader's filter.
func checkSuffix(suffix string, wild bool) error {
	if suffix == "" {
		return nil
	}
	if len(suffix) > 512 {
		return fmt.Errorf("store: subject of %d bytes: must have at most 512", len(suffix))
	}
	tokens := strings.Split(suffix, ".")
	for i, t := range tokens {
		if wild && (t == "*" || t == ">" && i == len(tokens)-1) {
			continue
		}
		if t == "" || strings.IndexFunc(t, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}) >= 0 {
			return fmt.Errorf("store: subject %q: tokens of A-Z, a-z, 0-9, - and _ joined by dots are allowed", suffix)
		}
	}
	return nil
}

func checkData(data []byte) error {
	if len(data) > MaxData {
		return fmt.Errorf("store: %d bytes in one message: at most %d: %w", len(data), MaxData, ErrTooLarge)
	}
	return nil
}

// CreateStream makes an empty append-only stream and returns an appender to it. It returns
// ErrExists if the stream exists.
func (s *Store) CreateStream(ctx context.Context, name string) (Appender, error) {
	done, err := s.writing()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.createStream(ctx, name, streamConfig{}); err != nil {
		return nil, err
	}
	return s.appender(name), nil
}

func (s *Store) createStream(ctx context.Context, name string, c streamConfig) error {
	if err := checkName("stream", name); err != nil {
		return err
	}
	if c.window < 0 || c.maxBytes < 0 {
		return fmt.Errorf("store: stream %s: a value below 0 in %+v", name, c)
	}
	jc := s.base(s.logName(name), s.logSubject(name, ">"))
	jc.DenyDelete, jc.DenyPurge = true, true
	if c.window != 0 {
		jc.Duplicates = c.window
	}
	if c.maxBytes != 0 {
		jc.MaxBytes = c.maxBytes
	}
	return s.newStream(ctx, jc)
}

// newStream creates a stream and refuses an existing one. The broker would report success for
// an equal configuration, so random metadata makes each creation differ; a repetition of the
// same creation, after a lost answer, still succeeds.
func (s *Store) newStream(ctx context.Context, jc jetstream.StreamConfig) error {
	jc.Metadata["riffle-creation"] = randomID()
	_, err := retry(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.CreateStream(ctx, jc) })
	if err != nil {
		err = s.fail("create stream "+jc.Name, err)
		if errors.Is(err, ErrExists) { // by a creation that was cut short, perhaps: whoever asked relies on the stream
			if unsettled := s.settleStream(jc.Name); unsettled != nil {
				return unsettled
			}
		}
		return err
	}
	if s.server != nil {
		if err := s.endRemoval(jc.Name); err != nil {
			return err
		}
	}
	return s.settleStream(jc.Name)
}

func (s *Store) removeStream(ctx context.Context, full string) error {
	begun := func() error { return nil }
	if s.server != nil {
		if _, err := os.Stat(s.streamDir(full)); err == nil {
			if begun, err = s.beginRemoval(full); err != nil {
				return err
			}
		}
	}
	_, err := retry(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.js.DeleteStream(ctx, full) })
	if err != nil {
		return s.fail("delete stream "+full, err)
	}
	if s.server != nil {
		if err := s.awaitRemoval(full); err != nil {
			return err
		}
		s.settled.mu.Lock()
		delete(s.settled.streams, full)
		s.settled.mu.Unlock()
	}
	return begun()
}

func (s *Store) listNames(ctx context.Context, kind, subject, prefix string) ([]string, error) {
	return retry(ctx, s, func(ctx context.Context) ([]string, error) {
		var names []string
		list := s.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
		for full := range list.Name() {
			if name, ok := strings.CutPrefix(full, kind); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if err := list.Err(); err != nil {
			return nil, s.failUnlessRetried("list streams", err)
		}
		slices.Sort(names)
		return names, nil
	})
}

// failUnlessRetried maps errors like fail, except those that retry handles.
func (s *Store) failUnlessRetried(what string, err error) error {
	if unreached(err) || unanswered(err) {
		return err
	}
	return s.fail(what, err)
}

// StreamSize returns the size of a stream as stored, in bytes with headers, and the sequence of
// its last message ever, 0 before the first.
func (s *Store) StreamSize(ctx context.Context, name string) (bytes, last uint64, err error) {
	if err := checkName("stream", name); err != nil {
		return 0, 0, err
	}
	info, err := s.info(ctx, s.logName(name))
	return info.bytes, info.last, err
}

func (s *Store) info(ctx context.Context, full string) (streamInfo, error) {
	h, err := retry(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, full) })
	if err != nil {
		return streamInfo{}, s.fail("stream "+full, err)
	}
	st := h.CachedInfo().State
	return streamInfo{count: st.Msgs, bytes: st.Bytes, last: st.LastSeq}, nil
}

// Append writes a message and returns its sequence, once it is durable. A
// message whose msgID is still in the stream's window is not stored again: its
// first sequence is returned. Without msgID, a write whose answer is lost fails with
// ErrUnavailable and may have been stored; with it, it is repeated until it is answered.
func (s *Store) Append(ctx context.Context, stream, msgID, suffix string, data []byte) (uint64, error) {
	m, err := s.message(stream, msgID, suffix, data)
	if err != nil {
		return 0, err
	}
	done, err := s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	return s.publish(ctx, write{stream: s.logName(stream), msg: m, repeat: msgID != ""})
}

func (s *Store) message(stream, msgID, suffix string, data []byte) (*nats.Msg, error) {
	if err := checkName("stream", stream); err != nil {
		return nil, err
	}
	if err := checkSuffix(suffix, false); err != nil {
		return nil, err
	}
	if err := checkData(data); err != nil {
		return nil, err
	}
	if len(msgID) > 128 || strings.ContainsAny(msgID, "\r\n\x00") {
		return nil, fmt.Errorf("store: message id %q: at most 128 bytes on one line", msgID)
	}
	m := &nats.Msg{Subject: s.logSubject(stream, suffix), Data: data}
	if msgID != "" {
		m.Header = nats.Header{jetstream.MsgIDHeader: {msgID}}
	}
	return m, nil
}

type expectation int

const (
	expectNothing expectation = iota
	lastOfStream
	lastOfSubject
)

// write is one message on its way into a stream.
type write struct {
	stream     string
	msg        *nats.Msg
	expect     expectation
	expectLast uint64
	repeat     bool // has an id, so it may be sent again although it may have been stored
}

// publish sends a write until it is answered. A conditional write carries an id, so that
// after a lost answer its own success is not mistaken for another writer's.
func (s *Store) publish(ctx context.Context, w write) (uint64, error) {
	what := "write to " + w.stream
	if w.msg.Header == nil {
		w.msg.Header = nats.Header{}
	}
	w.msg.Header.Set(jetstream.ExpectedStreamHeader, w.stream)
	switch w.expect {
	case lastOfStream:
		w.msg.Header.Set(jetstream.ExpectedLastSeqHeader, fmt.Sprint(w.expectLast))
	case lastOfSubject:
		w.msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(w.expectLast))
	}
	if w.expect != expectNothing {
		w.repeat = true
		if w.msg.Header.Get(jetstream.MsgIDHeader) == "" {
			w.msg.Header.Set(jetstream.MsgIDHeader, randomID())
		}
	}
	ctx, cancel := s.patience(ctx)
	defer cancel()
	open := false // an answer was lost
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
		stop := func() bool { return true }
		if s.log != nil {
			stop = context.AfterFunc(s.log.filled, done)
		}
		ack, err := s.js.PublishMsg(attempt, w.msg, jetstream.WithRetryAttempts(0))
		stop()
		done()
		if err == nil {
			return ack.Sequence, s.settle(w.stream)
		}
		if !unreached(err) && !unanswered(err) {
			err = s.fail(what, err)
			if errors.Is(err, ErrConflict) {
				// Ask at the first attempt, too: the caller may be repeating a write whose
				// id is stored already.
				seq, own, lookup := s.storedBefore(ctx, w)
				if own {
					return seq, s.settle(w.stream)
				}
				if lookup == nil {
					return 0, err
				}
			}
			if open {
				return 0, fmt.Errorf("store: %s: %w, then: %v", what, ErrUnavailable, err)
			}
			return 0, err
		}
		open = open || unanswered(err)
		if open && !w.repeat || ctx.Err() != nil || s.hopeless() {
			return 0, s.fail(what, err)
		}
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			// Nobody serves the subject: there is no leader, or no stream. Without a leader
			// this question may get no answer either.
			ask, done := context.WithTimeout(ctx, time.Second)
			_, missing := s.js.Stream(ask, w.stream)
			done()
			if errors.Is(missing, jetstream.ErrStreamNotFound) {
				return 0, s.fail(what, missing)
			}
		}
		if !sleep(ctx, wait) {
			return 0, s.fail(what, err)
		}
	}
}

// storedBefore says whether the message that won a conflict is this very write.
func (s *Store) storedBefore(ctx context.Context, w write) (seq uint64, own bool, err error) {
	got, err := retry(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		h, err := s.js.Stream(ctx, w.stream)
		if err != nil {
			return nil, err
		}
		if w.expect == lastOfStream {
			return h.GetMsg(ctx, w.expectLast+1)
		}
		return h.GetLastMsgForSubject(ctx, w.msg.Subject)
	})
	if err = s.fail("compare with "+w.stream, err); errors.Is(err, ErrNotFound) {
		return 0, false, nil // deleted since, or the caller expected a later sequence
	}
	if err != nil {
		return 0, false, err
	}
	own = got.Subject == w.msg.Subject && got.Header.Get(jetstream.MsgIDHeader) == w.msg.Header.Get(jetstream.MsgIDHeader) &&
		bytes.Equal(got.Data, w.msg.Data)
	return got.Sequence, own, nil
}

// Read yields the messages of a stream in order, from sequence from on (0 and 1: from the
// first) up to the last one at the time of the call. The filter is a suffix. It may hold the
// wildcards * (one token) and > (the rest); the empty filter matches all. Read stops at an
// error. The caller may keep the messages.
func (s *Store) Read(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Message, error] {
	return s.readAll(ctx, stream, from, filter)
}

// readAll is Read for the messages that match one of the filters.
func (s *Store) readAll(ctx context.Context, stream string, from uint64, filters ...string) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		err := checkName("stream", stream)
		var subjects []string
		for _, filter := range filters {
			err = errors.Join(err, checkSuffix(filter, true))
			if filter == "" {
				filter = ">"
			}
			subjects = append(subjects, s.logSubject(stream, filter))
		}
		if err != nil {
			yield(Message{}, err)
			return
		}
		for m, err := range s.read(ctx, s.logName(stream), from, subjects...) {
			if err != nil {
				yield(Message{}, err)
				return
			}
			if !yield(Message{Seq: m.seq, Suffix: s.suffixOf(stream, m.msg.Subject()), ID: messageID(m.msg.Headers()),
				Data: m.msg.Data()}, nil) {
				return
			}
		}
	}
}
