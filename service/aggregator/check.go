package aggregator

import (
	"context"

	"github.com/riffle-dp/riffle/service/store"
)

// Check reads an aggregator's store, which must not be in use. It calls problem for each thing
// that is wrong, with its key. It returns the number of rounds, or an error if the store
// cannot be listed.
func Check(ctx context.Context, s *store.Store, problem func(where, format string, args ...any)) (rounds int64, err error) {
	keys, err := s.List(ctx, store.Values, recordPrefix)
	for _, key := range keys {
		e, err := s.Get(ctx, key)
		if err == nil {
			_, err = decodeRecord(e.Value)
		}
		if err != nil {
			problem(key, "%v", err)
		}
	}
	return int64(len(keys)), err
}
