package batch

import (
	"sync"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Receipts collects the receipts of the messages that are opened, apart from the messages. Its
// methods may be called by several goroutines.
type Receipts struct {
	mu   sync.Mutex
	list []wire.ID
}

// Add adds the receipt of a message that was opened.
func (r *Receipts) Add(receipt wire.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, receipt)
}

// Sorted returns the receipts in ascending order, which says nothing of the order of the messages.
func (r *Receipts) Sorted() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wire.SortReceipts(r.list)
}
