package e2b

import "time"

// MostFiles is how many requests for files of one sandbox are served at once.
const MostFiles = mostFiles

// Stall sets how long the client of a download or an upload may stand still.
func Stall(o *Options, limit time.Duration) { o.stall = limit }
