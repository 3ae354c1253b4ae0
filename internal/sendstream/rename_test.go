package sendstream

// Rename renames path, and replaces the entry at to.
func (s *Writer) Rename(path, to string) { s.do(Rename, part{aPath, path}, part{aPathTo, to}) }
