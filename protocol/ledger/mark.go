package ledger

// SaveMark brings the mark up to date with all entries that were read. Charge does so after each entry
// that it writes or finds. Whoever acts upon a charge that was found otherwise, or lets clients report
// to a round that will be charged, calls SaveMark before: while the mark cannot be written, whoever
// restores an older copy of the log forgets what was charged since, and nobody notices.
func (j *Journal) SaveMark() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mark()
}
