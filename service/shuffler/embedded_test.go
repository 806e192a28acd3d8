package shuffler

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/internal/longtest"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// soakChild is what the test binary is instead in a process of a soak test.
var soakChild func()

func TestMain(m *testing.M) {
	if os.Getenv(loadChild) != "" {
		loadMain()
	}
	if os.Getenv(nodeChild) != "" {
		nodeMain()
	}
	if soakChild != nil {
		soakChild()
	}
	debug.SetGCPercent(400) // most of what is allocated here is of a world that is over
	goleak.VerifyTestMain(m)
}

// disk is a new embedded store, closed with the test.
func disk(t testing.TB) (*store.Store, string) {
	t.Helper()
	dir := t.TempDir()
	return stored(t, dir), dir
}

// stored is a new embedded store in a directory, closed with the test.
func stored(t testing.TB, dir string) *store.Store {
	t.Helper()
	c := store.Config{Domain: "shuffler", Dir: dir}
	if err := store.Init(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// inFiles returns which markers the files below dir hold, and the files' names.
func inFiles(t testing.TB, dir string, markers map[string][]byte) (hits, names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		names = append(names, path)
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for name, m := range markers {
			if bytes.Contains(b, m) {
				hits = append(hits, name+" in "+filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hits, names
}

// inMemory returns which markers a state holds, and the names of what it holds.
func inMemory(s *memory.Disk, markers map[string][]byte) (hits, names []string) {
	s.Lock()
	defer s.Unlock()
	look := func(where string, b []byte) {
		names = append(names, where)
		for name, m := range markers {
			if bytes.Contains(b, m) {
				hits = append(hits, name+" in "+where)
			}
		}
	}
	for name, b := range s.Values {
		look(name, b)
	}
	for name, b := range s.Secrets {
		look(name, b)
	}
	for name, b := range s.Objects {
		look(name, b)
	}
	for name, all := range s.Streams {
		for _, m := range all {
			look(name+" "+m.Suffix, m.Data)
		}
	}
	return hits, names
}

// During the round nothing of a report lies on the disk in the clear; after it
// neither the keys, nor the streams with their order and times.
func TestStoreShowsNoReports(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 30)
			showsNoReports(t, w, &memory.Store{Disk: w.disk}, func(m map[string][]byte) ([]string, []string) { return inMemory(w.disk, m) })
		})
	})
	t.Run("disk", func(t *testing.T) {
		longtest.Only(t, "it opens an embedded store")
		on, dir := disk(t)
		showsNoReports(t, newWorld(t, 30), on, func(m map[string][]byte) ([]string, []string) { return inFiles(t, dir, m) })
	})
}

func showsNoReports(t *testing.T, w *world, on storage, look func(markers map[string][]byte) (hits, names []string)) {
	c := w.config()
	c.Store, c.Bucket = on, 4000 // several buckets
	n := w.start(c)
	ann := n.announcement(1)
	n.open(ann)
	ctx := context.Background()
	d := wire.Digest(ann)
	name := encodeName(d[:])
	keys, err := n.links(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	block, err := n.sealKey(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.round(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	secretMarkers := map[string][]byte{"order key": keys.order[:], "draw key": keys.draw[:], "block key": block}
	if hits, _ := look(secretMarkers); len(hits) != 3 {
		t.Errorf("the search is blind: of three keys it finds %v", hits)
	}
	markers := map[string][]byte{}
	var bodies [][]byte
	for i := range w.clients {
		report := w.unsealed(ann, i, 0)
		session := w.session(i)
		wire.Authenticate(report, session)
		body := w.sealed(report)
		bodies = append(bodies, body)
		who := string(rune('a' + i))
		markers["part of "+who] = report.Part[10:60]
		markers["client "+who] = report.Client[:]
		markers["id of "+who] = report.ID[:]
		markers["MAC of "+who], markers["session of "+who] = report.MAC[:], session.Key[:]
		markers["body of "+who] = body[60:100]
		markers["key of "+who] = public(w.clients[i])
		tag := pure.Tag(r.order, nil, report.Client, report.ID)
		markers["tag of "+who], markers["id tag of "+who] = tag[:16], tag[16:]
	}
	n.send(bodies[:20]...)
	if hits, _ := look(markers); len(hits) != 0 {
		t.Errorf("in the clear during the round: %v", hits)
	}
	n.send(bodies[20:]...)
	word := n.closed(ann)
	if got := n.fetch(Coordinator, ann, word); len(got) != 30 {
		t.Fatalf("%d reports", len(got))
	}
	markers["order key"], markers["draw key"] = keys.order[:], keys.draw[:]
	if hits, _ := look(markers); len(hits) != 0 {
		t.Errorf("in the clear after the round: %v", hits)
	}
	n.must(Coordinator, "DELETE", path(ann, ""), nil)
	for k, v := range secretMarkers {
		markers[k] = v
	}
	if hits, _ := look(markers); len(hits) != 0 {
		t.Errorf("left after the release: %v", hits)
	}
	_, names := look(nil)
	for _, left := range names {
		if strings.Contains(left, name) && !strings.HasPrefix(left, keyRecord("")) {
			t.Errorf("left after the release: %s", left)
		}
	}
}

// Frontends and the one that closes are three services on one store.
func TestFrontendsShareAStore(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 24)
			frontendsShare(t, w, &memory.Store{Disk: w.disk})
		})
	})
	t.Run("disk", func(t *testing.T) {
		longtest.Only(t, "it opens an embedded store")
		on, _ := disk(t)
		frontendsShare(t, newWorld(t, 24), on)
	})
}

func frontendsShare(t *testing.T, w *world, on storage) {
	c := w.config()
	c.Store = on
	worker := w.start(c)
	c.Roster = nil
	for _, k := range w.clients {
		c.Roster = append(c.Roster, k.Public().(ed25519.PublicKey)...)
	}
	c.FrontendOnly = true
	fronts := []*node{w.start(c), w.start(c)}
	ann := fronts[0].announcement(1)
	fronts[1].open(ann) // every frontend opens for all
	worker.open(ann)
	for i := range len(w.clients) - 1 {
		fronts[i%2].send(w.report(ann, i, 0))
		if i%4 == 0 { // the answer was lost: the client asks the other one
			fronts[1-i%2].send(w.report(ann, i, 0))
		}
		if i%6 == 1 {
			fronts[1-i%2].send(w.report(ann, i, 1)) // two reports at two frontends
		}
	}
	fronts[0].refused(wire.Malformed, "", "POST", "/v1/report", []byte("garbage"))
	fronts[1].refused(wire.SecondReport, "", "POST", "/v1/report", w.report(ann, 1, 8))
	fronts[1].send(w.report(ann, 23, 0))
	word := worker.closed(ann)
	if time.Now().UnixMilli() >= ann.Deadline {
		t.Error("closed only at the deadline, although all had reported")
	}
	got := rejected(word)
	if word.Reports != 24 || got[wire.Duplicate] != 6 || got[wire.SecondReport] != 4+1 {
		t.Errorf("%d reports, rejected %v", word.Reports, got)
	}
	fronts[0].fetch(Coordinator, ann, word) // any of them serves it
}
