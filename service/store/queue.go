package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Queue hands out items of work to workers, who may be other processes, and keeps what they send
// back. An item is handed out again if its worker dies or is silent for AckWait, so an item may be
// done more than once, and its results may come more than once. After Deliveries attempts it is
// given up, and its result says so.
//
// A queue q of the domain d owns the streams d_work_q (items, each until it is done) and d_done_q
// (results, each until Purge, a week at most). A worker needs no more of the broker than permittedSubjects names.
type Queue struct {
	s    *Store
	name string

	mu       sync.Mutex
	consumer jetstream.Consumer // nil before the first Pull
}

// QueueConfig says how items are handed out. Its zero value has the defaults.
type QueueConfig struct {
	// AckWait is how long a worker may be silent before its item goes to another. Default 30 s.
	AckWait time.Duration
	// Deliveries is how often an item is handed out before it is given up. Default 5.
	Deliveries int
}

// workers is the name of the consumer that all workers of a queue share.
const workers = "workers"

// resultsAge is how long a result is kept that no group's Purge removes: whoever may send results may send
// them under any name. An item whose result is gone is done again.
const resultsAge = 7 * 24 * time.Hour

const deliveriesKey = "riffle-deliveries"

// Queue makes a queue, or changes one that is there.
func (s *Store) Queue(ctx context.Context, name string, c QueueConfig) (*Queue, error) {
	if err := checkName("queue", name); err != nil {
		return nil, err
	}
	if c.AckWait < 0 || c.Deliveries < 0 {
		return nil, fmt.Errorf("store: queue %s: a value below 0 in %+v", name, c)
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.Deliveries == 0 {
		c.Deliveries = 5
	}
	done, err := s.writing()
	if err != nil {
		return nil, err
	}
	defer done()
	q := &Queue{s: s, name: name}
	work, results := s.base(q.workStream(), q.workSubject(">")), s.base(q.doneStream(), q.doneSubject(">"))
	work.Retention = jetstream.WorkQueuePolicy
	results.MaxAge = resultsAge
	consumer := jetstream.ConsumerConfig{Durable: workers, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait, MaxDeliver: -1,
		MaxAckPending: 1 << 12, Metadata: map[string]string{deliveriesKey: strconv.Itoa(c.Deliveries)}}
	_, err = retry(ctx, s, func(ctx context.Context) (struct{}, error) {
		for _, jc := range []jetstream.StreamConfig{work, results} {
			if _, err := s.js.CreateOrUpdateStream(ctx, jc); err != nil {
				return struct{}{}, err
			}
			if err := s.settleStream(jc.Name); err != nil {
				return struct{}{}, err
			}
		}
		_, err := s.js.CreateOrUpdateConsumer(ctx, work.Name, consumer)
		return struct{}{}, err
	})
	if err != nil {
		return nil, s.fail("create queue "+name, err)
	}
	return q, nil
}

// DialQueue connects a worker to a queue of a cluster. It reads nothing of the store but the queue,
// which need not be there yet. The caller must Close it.
func DialQueue(ctx context.Context, c Config, name string) (*Queue, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	if c.URL == "" {
		return nil, errors.New("store: a queue for other processes needs a cluster (url)")
	}
	if err := checkName("queue", name); err != nil {
		return nil, err
	}
	s, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Queue{s: s, name: name}, nil
}

// Close ends the connection of DialQueue.
func (q *Queue) Close() error { return q.s.Close() }

// permittedSubjects returns the subjects that a worker of a domain's queue must be allowed to publish
// to, with api the prefix of Config.API. It subscribes to "_INBOX.>" only. Its user must be in an account of
// its own, to which the store's account exports these subjects as services: in the store's account it
// would read all answers to the coordinator, and no permission holds for the subject of a reply, so it could
// have the broker write answers into the ledger, or send them to the API that deletes it.
func permittedSubjects(domain, queue, api string) []string {
	q := &Queue{s: &Store{config: Config{Domain: domain}}, name: queue}
	return []string{
		fmt.Sprintf("%s.CONSUMER.INFO.%s.%s", api, q.workStream(), workers),
		fmt.Sprintf("%s.CONSUMER.MSG.NEXT.%s.%s", api, q.workStream(), workers),
		fmt.Sprintf("$JS.ACK.%s.%s.>", q.workStream(), workers),
		q.doneSubject(">"),
	}
}

func (q *Queue) workStream() string          { return q.s.config.Domain + "_work_" + q.name }
func (q *Queue) doneStream() string          { return q.s.config.Domain + "_done_" + q.name }
func (q *Queue) workSubject(s string) string { return q.s.config.Domain + ".work." + q.name + "." + s }
func (q *Queue) doneSubject(s string) string { return q.s.config.Domain + ".done." + q.name + "." + s }

// checkItem allows names of items, which are subjects of two tokens at least: a group and a name in
// it.
func checkItem(name string) error {
	if !strings.Contains(name, ".") {
		return fmt.Errorf("store: item %q: must have a group and a name, with a dot between", name)
	}
	return checkSuffix(name, false)
}

// Put adds an item, once it is durable. An item of this name that is not done yet stays as it is.
func (q *Queue) Put(ctx context.Context, item string, data []byte) error {
	if err := errors.Join(checkItem(item), checkData(data)); err != nil {
		return err
	}
	done, err := q.s.writing()
	if err != nil {
		return err
	}
	defer done()
	_, err = q.s.publish(ctx, write{stream: q.workStream(), msg: &nats.Msg{Subject: q.workSubject(item), Data: data}, expect: lastOfSubject})
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// Waits says whether an item is not done yet. It asks the stream's leader.
func (q *Queue) Waits(ctx context.Context, item string) (bool, error) {
	if err := checkItem(item); err != nil {
		return false, err
	}
	_, err := retry(ctx, q.s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		h, err := q.s.js.Stream(ctx, q.workStream())
		if err != nil {
			return nil, err
		}
		return h.GetLastMsgForSubject(ctx, q.workSubject(item))
	})
	if err = q.s.fail("queue "+q.name, err); errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Purge removes all items and results of a group. A worker that has such an item finishes in vain;
// what it still sends stays until the group is purged again.
func (q *Queue) Purge(ctx context.Context, group string) error {
	if err := checkSuffix(group, false); err != nil || group == "" {
		return errors.Join(err, fmt.Errorf("store: group %q to purge", group))
	}
	for full, subject := range map[string]string{q.workStream(): q.workSubject(group + ".>"), q.doneStream(): q.doneSubject(group + ".>")} {
		_, err := retry(ctx, q.s, func(ctx context.Context) (struct{}, error) {
			h, err := q.s.js.Stream(ctx, full)
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, h.Purge(ctx, jetstream.WithPurgeSubject(subject))
		})
		if err != nil {
			return q.s.fail("purge "+full, err)
		}
	}
	return nil
}

// Queued returns the number of items and of messages of results that a queue holds; none if there is
// no such queue.
func (s *Store) Queued(ctx context.Context, name string) (items, results uint64, err error) {
	if err := checkName("queue", name); err != nil {
		return 0, 0, err
	}
	q := &Queue{s: s, name: name}
	for full, n := range map[string]*uint64{q.workStream(): &items, q.doneStream(): &results} {
		info, err := s.info(ctx, full)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return 0, 0, err
		}
		*n = info.count
	}
	return items, results, nil
}

// Item is an item that a worker has. It must call one of Finish, Fail and Return.
type Item struct {
	Name string
	Data []byte

	q   *Queue
	msg jetstream.Msg
	ack time.Duration // the queue's AckWait
}

// Pull waits for an item until ctx ends. It returns ErrNotFound while there is no such queue.
func (q *Queue) Pull(ctx context.Context) (*Item, error) {
	for {
		c, err := q.pulled(ctx)
		if err != nil {
			return nil, err
		}
		// A short request soon notices a new leader.
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		batch, err := c.Fetch(1, jetstream.FetchContext(attempt))
		var msg jetstream.Msg
		if err == nil {
			for m := range batch.Messages() {
				msg = m
			}
			err = batch.Error()
		}
		if errors.Is(err, jetstream.ErrInvalidOption) {
			<-attempt.Done() // its time was over at once
			err = attempt.Err()
		}
		cancel()
		switch {
		case msg != nil:
			if i, err := q.taken(ctx, c, msg); i != nil || err != nil {
				return i, err
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !unanswered(err):
			q.mu.Lock()
			q.consumer = nil // it may have been deleted and made anew
			q.mu.Unlock()
			if !unreached(err) && !errors.Is(err, jetstream.ErrNoHeartbeat) {
				return nil, q.s.fail("queue "+q.name, err)
			}
			if !sleep(ctx, 100*time.Millisecond) {
				return nil, ctx.Err()
			}
		}
	}
}

// There says whether the queue has been made.
func (q *Queue) There(ctx context.Context) (bool, error) {
	_, err := q.pulled(ctx)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (q *Queue) pulled(ctx context.Context) (jetstream.Consumer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer == nil {
		c, err := retry(ctx, q.s, func(ctx context.Context) (jetstream.Consumer, error) {
			return q.s.js.Consumer(ctx, q.workStream(), workers)
		})
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			err = ErrNotFound
		}
		if err != nil {
			return nil, q.s.fail("queue "+q.name, err)
		}
		q.consumer = c
	}
	return q.consumer, nil
}

// taken returns a delivered item, or gives it up if it was delivered too often.
func (q *Queue) taken(ctx context.Context, c jetstream.Consumer, msg jetstream.Msg) (*Item, error) {
	config := c.CachedInfo().Config
	i := &Item{Name: strings.TrimPrefix(msg.Subject(), q.workSubject("")), Data: msg.Data(), q: q, msg: msg, ack: config.AckWait}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, q.s.fail("queue "+q.name, err)
	}
	most, err := strconv.ParseUint(config.Metadata[deliveriesKey], 10, 32)
	if err != nil || meta.NumDelivered <= most {
		return i, nil
	}
	return nil, i.Fail(ctx, fmt.Sprintf("it was handed out %d times and was never finished", most))
}

// Keep tells the queue, until stop is called, that the item's worker is at work.
func (i *Item) Keep() (stop func()) {
	ctx, cancel := context.WithCancel(i.q.s.open)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(ctx, i.ack/4) {
			_ = i.msg.InProgress() // if this fails, the item may go to another worker as well
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Return gives an item back, so that another worker has it at once.
func (i *Item) Return() error { return i.q.s.fail("queue "+i.q.name, i.msg.Nak()) }

// Finish sends the item's result, of any size, and ends the item once the result is durable.
func (i *Item) Finish(ctx context.Context, result []byte) error {
	nonce, n := randomID(), max(1, (len(result)+MaxBlock-1)/MaxBlock)
	for k := range n {
		piece := result[k*MaxBlock : min(len(result), (k+1)*MaxBlock)]
		if err := i.send(ctx, fmt.Sprintf("%s.%d.%d", nonce, k, n), piece); err != nil {
			return err
		}
	}
	return i.end(ctx)
}

// Fail ends an item that cannot be done, with the reason in place of a result.
func (i *Item) Fail(ctx context.Context, why string) error {
	if err := i.send(ctx, randomID()+".0.0", []byte(why[:min(len(why), 1<<10)])); err != nil {
		return err
	}
	return i.end(ctx)
}

// send writes one message of a result.
func (i *Item) send(ctx context.Context, suffix string, data []byte) error {
	m := &nats.Msg{Subject: i.q.doneSubject(i.Name + "." + suffix), Data: data, Header: nats.Header{jetstream.MsgIDHeader: {suffix}}}
	_, err := i.q.s.publish(ctx, write{stream: i.q.doneStream(), msg: m, repeat: true})
	return err
}

func (i *Item) end(ctx context.Context) error {
	_, err := retry(ctx, i.q.s, func(ctx context.Context) (struct{}, error) { return struct{}{}, i.msg.DoubleAck(ctx) })
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		err = nil
	}
	return i.q.s.fail("queue "+i.q.name, err)
}
