package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Catalog is an open state directory, which holds the records of all sandboxes. [Open] makes it; it holds
// no file open, and any number of processes may have one of the same directory.
type Catalog struct {
	dir  string
	plan fault.Plan
}

const (
	sandboxes = "sandboxes"
	active    = "active"
	trash     = "trash"
	places    = "places"
	spare     = "spare"
	ends      = "ends"
	format    = "format"
	record    = RecordFile
)

// RecordFile is the name of the file with a sandbox's [Record], in the directory of the sandbox.
const RecordFile = "record.json"

// Open opens the catalogue in the state directory dir, or creates it, accessible only to its owner. It
// refuses a directory of a newer format (ErrNotSupported), and one that belongs to another user or that
// others can write to (ErrDenied).
func Open(dir string) (*Catalog, error) {
	c := &Catalog{dir: dir}
	if err := checkOwner(dir); err != nil {
		return nil, err
	}
	data, err := vfs.ReadFile(filepath.Join(dir, format))
	if errors.Is(err, fs.ErrNotExist) {
		return c, c.create()
	}
	if err != nil {
		return nil, fail("opening the state directory", dir, err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, &errs.Error{Op: "opening the state directory", Path: filepath.Join(dir, format), Kind: errs.ErrCorrupt, Err: err}
	}
	if version > Format {
		return nil, newer(dir, version)
	}
	return c, c.complete()
}

// complete makes those directories of the catalogue again that are often empty, if they are missing: a backup
// without empty directories has not restored them. It does not make the directory of the sandboxes, because
// without it a garbage collection would take the data of all sandboxes for unused.
func (c *Catalog) complete() error {
	for _, d := range []string{active, trash, spare} {
		path := filepath.Join(c.dir, d)
		if unix.Access(path, unix.F_OK) != unix.ENOENT { // costs less than trying to make it
			continue
		}
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fail("making", path, err)
		}
	}
	return nil
}

// Is reports whether dir contains a catalogue of sandboxes, that is, whether it is a state directory of
// snapfs.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, format))
	return err == nil
}

// checkOwner returns ErrDenied for a state directory in which another user could plant files: one that
// belongs to another user, even if this process is root, or that others can write to. A missing directory is
// no error.
func checkOwner(dir string) error {
	var st syscall.Stat_t
	switch err := syscall.Stat(dir, &st); {
	case err == syscall.ENOENT:
		return nil
	case err != nil:
		return fail("opening the state directory", dir, err)
	}
	denied := func(why string, hints ...string) error {
		return &errs.Error{Op: "opening the state directory", Path: dir, Kind: errs.ErrDenied, Err: errors.New(why), Hints: hints}
	}
	if int(st.Uid) != os.Geteuid() {
		return denied("it belongs to another user (uid " + strconv.Itoa(int(st.Uid)) + ")")
	}
	if st.Mode&0o022 != 0 {
		return denied("other users can write to it", "chmod go-w "+errs.Quoted(dir))
	}
	return nil
}

func (c *Catalog) create() error {
	for _, d := range []string{"", sandboxes, active, trash, spare} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o700); err != nil {
			return fail("making the state directory", c.dir, err)
		}
	}
	tmp, err := os.CreateTemp(c.dir, format+".") // several commands may be the first
	if err != nil {
		return fail("making the state directory", c.dir, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err := tmp.Close(); err != nil {
		return fail("making the state directory", c.dir, err)
	}
	if err := write(tmp.Name(), []byte(strconv.Itoa(Format)+"\n"), durable); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(c.dir, format)); err != nil {
		return fail("making the state directory", c.dir, err)
	}
	return syncDir(c.dir)
}

// Rehearse makes later writes to the catalogue fail at the points that plan selects. Only tests of failed
// writes call it.
func (c *Catalog) Rehearse(plan fault.Plan) { c.plan = plan }

// Dir returns the path of the state directory, which contains the catalogue.
func (c *Catalog) Dir() string { return c.dir }

// Images returns the directory in which containers cache what hides names: filesystem images, and overlay layers, which
// nobody may change or remove while a container runs. It exists once it has an entry.
func (c *Catalog) Images() string { return filepath.Join(c.dir, "images") }

// Digests returns the directory in which containers cache the digests of programs. It exists once it has an entry.
func (c *Catalog) Digests() string { return filepath.Join(c.dir, "digests") }

// Packages returns the directory in which the programs of packages are cached. It exists once it has an entry.
func (c *Catalog) Packages() string { return filepath.Join(c.dir, "packages") }

// Path returns the directory of the sandbox called name, existing or not.
func (c *Catalog) Path(name string) string { return SandboxDir(c.dir, name) }

// SandboxDir returns the directory of the sandbox called name in a state directory, whether it exists or not,
// without opening the catalogue.
func SandboxDir(state, name string) string { return filepath.Join(state, sandboxes, name) }

// ViewSocket is the name of the socket, in the directory of a sandbox, of the process that shows the sandbox's files in a
// directory of the host. Programs of the host write there while the sandbox is frozen.
const ViewSocket = "view"

// DataDir returns the directory inside the state directory in which the backend called driver stores its
// data. It need not exist.
func (c *Catalog) DataDir(driver string) string { return filepath.Join(c.dir, "data", driver) }

// Create stores the record r of a new sandbox and thereby claims the name r.Name. It is atomic: if the name
// is taken it returns ErrExists and changes nothing. The caller holds an [Intent], by which a later command
// repairs the sandbox after a crash.
func (c *Catalog) Create(r *Record) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	dir, err := c.newDir(r.ID)
	if err != nil {
		return fail("making", c.Path(r.Name), err)
	}
	if err := c.claim(dir, r); err != nil {
		return errors.Join(err, removeAll(dir))
	}
	return nil
}

// newDir provides the directory DIR/spare/ID of the state directory, in which a new sandbox's record is
// written before the sandbox gets its name, and returns its path. It renames the directory of a removed
// sandbox if there is one, because that is cheaper than making one.
func (c *Catalog) newDir(id string) (string, error) {
	if err := c.plan.Point("make a directory"); err != nil {
		return "", err
	}
	dir := filepath.Join(c.dir, spare, id)
	for i := range spares {
		if vfs.RenameNew(c.spare(i), dir) == nil {
			return dir, nil
		}
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// claim writes the record r into dir, then renames dir to the sandbox's name, which claims the name. Unless
// the sandbox is ephemeral, the record reaches the disk before its name: after a power loss there is the sandbox, which
// is not ready, or none. The caller makes the name durable when it saves the record of the ready sandbox. ErrExists:
// the name is taken.
func (c *Catalog) claim(dir string, r *Record) error {
	data, err := encode(r)
	if err != nil {
		return fmt.Errorf("writing the record of %s: %w", r.Name, err)
	}
	if err := c.plan.Point("write the first record"); err != nil {
		return fail("writing", filepath.Join(dir, record), err)
	}
	if err := write(filepath.Join(dir, record), data, durabilityOf(r)); err != nil {
		return err
	}
	if !r.Ephemeral {
		writeCopy(dir, data)
	}
	path := c.Path(r.Name)
	if err = c.plan.Point("claim the name"); err == nil {
		err = vfs.RenameNew(dir, path)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return taken(r.Name)
	case err != nil:
		return fail("making", path, err)
	}
	return nil
}

func taken(name string) error {
	return &errs.Error{
		Op: "naming a sandbox", Path: name, Kind: errs.ErrExists,
		Err: errors.New("the name is taken"), Hints: []string{"snapfs ls"},
	}
}

// Unclaim removes the directory, not yet named for the sandbox, that a process left when it died in
// [Catalog.Create]. id is the id of the sandbox that it was creating.
func (c *Catalog) Unclaim(id string) error {
	if bad := CheckName(id); bad != nil || len(id) < 2 { // one letter is the number of a spare directory
		return nil //nolint:nilerr //nolint:nilerr // no sandbox has such an id
	}
	return removeAll(filepath.Join(c.dir, spare, id))
}

// spares is how many directories of removed sandboxes stay for reuse by new ones, since a rename is cheaper than
// making and removing a directory. Further ones are removed.
const spares = 4

func (c *Catalog) spare(i int) string { return filepath.Join(c.dir, spare, strconv.Itoa(i)) }

// durabilityOf returns how far a saved record of the sandbox r is brought: an ephemeral sandbox does not outlive
// its command.
func durabilityOf(r *Record) durability {
	if r.Ephemeral {
		return visible
	}
	return durable
}

func (c *Catalog) write(r *Record, to durability) error {
	data, err := encode(r)
	if err != nil {
		return fmt.Errorf("writing the record of %s: %w", r.Name, err)
	}
	return c.put(r.Name, data, to)
}

// put replaces the record of the sandbox called name by data.
func (c *Catalog) put(name string, data []byte, to durability) error {
	path := c.Path(name)
	if err := c.plan.Point("replace the record"); err != nil {
		return fail("writing", path, err)
	}
	if err := replaceFile(filepath.Join(path, record), data, to); err != nil {
		return err
	}
	if to >= ordered {
		writeCopy(path, data)
	}
	return nil
}

// WriteFile creates or replaces the file called file in the directory of the sandbox name, beside its record.
// The file is on stable storage afterwards. ErrNotFound: no such sandbox.
func (c *Catalog) WriteFile(name, file string, data []byte) error {
	return c.writeFile(name, file, data, durable)
}

// WriteFileOrdered does the same as [Catalog.WriteFile], but a power loss within the next seconds may leave the old
// file.
func (c *Catalog) WriteFileOrdered(name, file string, data []byte) error {
	return c.writeFile(name, file, data, ordered)
}

func (c *Catalog) writeFile(name, file string, data []byte, to durability) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return replaceFile(filepath.Join(c.Path(name), file), data, to)
}

// Store creates or replaces a file of the state directory that belongs to no sandbox. file is relative to the
// state directory. After a crash or a power loss the file has the old or the new content.
func (c *Catalog) Store(file string, data []byte) error {
	path := filepath.Join(c.dir, file)
	if err := c.plan.Point("write what was decided"); err != nil {
		return fail("writing", path, err)
	}
	return ReplaceFile(path, data, true)
}

// Update replaces the record of a sandbox without taking the sandbox's lock. The sandbox must be new, so that
// no other process knows its name yet.
func (c *Catalog) Update(r *Record) error { return c.write(r, durabilityOf(r)) }

// Share takes the catalogue's shared lock, which makes [Catalog.Exclude] wait until release is called. A
// command holds it from choosing an existing base for a new sandbox until the sandbox's record names that
// base, because a garbage collection would remove the unnamed base. release may be called twice.
func (c *Catalog) Share() (release func(), err error) { return c.flock(syscall.LOCK_SH) }

// Exclude takes the exclusive lock of the catalogue for a garbage collection of bases, so that no command
// begins to use a base meanwhile. It waits for all holders of the shared lock of [Catalog.Share], and blocks
// new ones until release is called.
func (c *Catalog) Exclude() (release func(), err error) { return c.flock(syscall.LOCK_EX) }

func (c *Catalog) flock(how int) (func(), error) {
	d, err := vfs.OpenAt(unix.AT_FDCWD, filepath.Join(c.dir, sandboxes), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return func() {}, fail("opening", c.dir, err)
	}
	for {
		if err = syscall.Flock(int(d.Fd()), how); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		d.Close()
		return func() {}, fail("locking", c.dir, err)
	}
	return func() { vfs.Unlock(d) }, nil
}

// Get reads the record of the sandbox called name. Errors: ErrNotFound, ErrCorrupt, and ErrNotSupported for a
// record of a newer format.
func (c *Catalog) Get(name string) (*Record, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	r, err := c.read(filepath.Join(c.Path(name), record), name)
	if err == nil {
		r.Name = name // a process may have been killed between the rename and the update of the record
	}
	return r, err
}

func (c *Catalog) read(path, name string) (*Record, error) {
	r, _, err := readRecord(unix.AT_FDCWD, path, path, name, decode)
	return r, err
}

// readRecord reads the record of the sandbox called name from the file path in the directory dir, and the
// attributes that the file had before. full is the file's path for errors, and decode decodes it.
func readRecord(dir int, path, full, name string, decode decoder) (*Record, vfs.Stat, error) {
	data, st, err := vfs.ReadSmallAt(dir, path, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, st, &errs.Error{
			Op: "looking for a sandbox", Path: name, Kind: errs.ErrNotFound,
			Err: errors.New("no sandbox has this name"), Hints: []string{"snapfs ls"},
		}
	}
	if err != nil {
		return nil, st, fail("reading", full, err)
	}
	r, err := decode(full, data)
	return r, st, err
}

func fail(op, path string, err error) error {
	return &errs.Error{Op: op, Path: path, Kind: errs.KindOf(err), Err: cause(err)}
}

// cause returns the error inside the fs.PathError that err is or wraps, and other errors unchanged. The
// errors of this package, the catalogue of sandboxes, name the path themselves, so it would appear twice.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
