package endpoint

import "os"

// private refuses nothing: permissions are in access lists of this system, which the file
// mode does not show.
func private(string, os.FileInfo) error { return nil }
