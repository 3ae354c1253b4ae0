package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
)

const (
	fileType = "application/octet-stream"
	// maxFile is the largest file in bytes that a client may write to a sandbox, 16 GiB; more fails.
	maxFile = 16 << 30
)

// A FilePath is the part of a request to the HTTP API that names a file in a sandbox.
type FilePath struct {
	Named
	Path string `query:"path" required:"true" minLength:"1" doc:"absolute in the sandbox, or relative to its workspace"`
}

type statInput struct {
	FilePath
	Follow bool `query:"follow" doc:"describe the target of a symbolic link"`
}

type infoOutput struct{ Body files.Info }

type dirInput struct {
	FilePath
	After string `query:"after" doc:"the last name of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"how many entries to return"`
}

type dirOutput struct {
	Body struct {
		Entries []files.Info `json:"entries" nullable:"false" doc:"sorted by name"`
		Next    string       `json:"next,omitempty" doc:"after of the next page; missing on the last one"`
	}
}

type readInput struct {
	FilePath
	Offset int64 `query:"offset" minimum:"0" doc:"the first byte to return"`
}

type writeInput struct {
	FilePath
	Mode    string `query:"mode" pattern:"^[0-7]{1,4}$" doc:"the permission bits of a new file, in octal; by default 0644"`
	Parents bool   `query:"parents" doc:"make missing parent directories"`
	New     bool   `query:"new" doc:"fail with 409 where the file exists"`

	body io.Reader
}

// Resolve stores the unread body of a request to write a file, which the route copies to the file. Package
// huma would read it into memory.
func (in *writeInput) Resolve(ctx huma.Context) []error {
	in.body = uploadOf(ctx, maxFile)
	return nil
}

// An upload reads the body of a request with the content of a file. The client has stallTime to send each
// part.
type upload struct {
	r       io.Reader
	control *http.ResponseController
	most    snapshot.Bytes // the size of the largest body
	read    int64
}

// uploadOf returns the unread body of a request, of at most most bytes.
func uploadOf(ctx huma.Context, most snapshot.Bytes) *upload {
	r, w := humago.Unwrap(ctx)
	return &upload{r: r.Body, control: http.NewResponseController(w), most: most}
}

func (u *upload) Read(p []byte) (int, error) {
	_ = u.control.SetReadDeadline(time.Now().Add(stallTime)) // a connection without deadlines is a test's
	n, err := u.r.Read(p)
	if u.read += int64(n); u.read > int64(u.most) {
		return 0, problem.Refused(http.StatusRequestEntityTooLarge, errs.ErrInvalid, "the content is larger than "+u.most.String())
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = errs.New("writing", "", errs.ErrInterrupted, "the content did not come whole: "+err.Error())
	}
	return n, err
}

type makeDirInput struct {
	Named
	Body struct {
		Path    string `json:"path" doc:"absolute in the sandbox, or relative to its workspace"`
		Parents bool   `json:"parents,omitempty" doc:"make missing parents too; a directory that exists is no error"`
	}
}

type renameInput struct {
	Named
	Body struct {
		From string `json:"from" doc:"absolute in the sandbox, or relative to its workspace"`
		To   string `json:"to" doc:"the new path; a file or an empty directory there is replaced"`
	}
}

type removeInput struct {
	FilePath
	All bool `query:"all" doc:"also a directory with everything in it"`
}

// binary returns the media type of a body that is the content of a file, for the OpenAPI document.
func binary() map[string]*huma.MediaType {
	return map[string]*huma.MediaType{fileType: {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
}

func (a *API) addFiles() {
	const path = "/v1/sandboxes/{name}/files"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/stat", id: "stat-file", summary: "Describe a file of a sandbox"}, a.stat)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/list", id: "list-files", summary: "List a directory of a sandbox"}, a.listFiles)
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: path + "/content", id: "read-file", summary: "Read a file of a sandbox", stream: true,
		detail: "Only regular files. A response that is shorter than its Content-Length is not whole.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the content", Content: binary()}}
		},
	}, a.readFile)
	add(a, route{
		scope: token.Run, method: http.MethodPut, path: path + "/content", id: "write-file", summary: "Write a file of a sandbox", stream: true,
		detail: "Atomic: where the content does not come whole, the old file stays.",
		edit:   func(op *huma.Operation) { op.RequestBody = &huma.RequestBody{Required: true, Content: binary()} },
	}, a.writeFile)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/directories", id: "make-directory", summary: "Make a directory in a sandbox", status: http.StatusCreated,
	}, a.makeDir)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/rename", id: "rename-file", summary: "Rename a file of a sandbox", status: http.StatusNoContent,
	}, a.rename)
	add(a, route{
		scope: token.Run, method: http.MethodDelete, path: path, id: "remove-file", summary: "Remove a file of a sandbox", status: http.StatusNoContent,
	}, a.remove)
}

// openFiles starts a session that works on the files of the sandbox called name. The caller closes the
// session.
func (a *API) openFiles(ctx context.Context, name string) (*files.Session, *catalog.Record, error) {
	e, rec, err := a.sandbox(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := a.o.Files.Enter(ctx, e, name, supervise.ExecOptions{EndAtTTL: true})
	return s, rec, err
}

// inFiles calls do with access to the files of the sandbox called name, and closes it afterwards.
func (a *API) inFiles(ctx context.Context, name string, do func(t files.Tree, rec *catalog.Record) error) error {
	s, rec, err := a.openFiles(ctx, name)
	if err != nil {
		return err
	}
	err = do(s, rec)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

// at returns a client's path as an absolute one; a relative path begins at the workspace of the sandbox. It
// does not clean the path, because only the kernel knows where ".." leads after a symbolic link.
func at(rec *catalog.Record, path string) string {
	if path == "" || path[0] == '/' {
		return path
	}
	return rec.Workspace + "/" + path
}

func (a *API) stat(ctx context.Context, in *statInput) (out *infoOutput, err error) {
	out = &infoOutput{}
	return out, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error {
		out.Body, err = t.Stat(at(rec, in.Path), in.Follow)
		return err
	})
}

func (a *API) listFiles(ctx context.Context, in *dirInput) (out *dirOutput, err error) {
	out = &dirOutput{}
	return out, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error {
		var more bool
		out.Body.Entries, more, err = t.List(at(rec, in.Path), files.ListOptions{After: in.After, Limit: in.Limit})
		if n := len(out.Body.Entries); more && n > 0 {
			out.Body.Next = out.Body.Entries[n-1].Name
		}
		return err
	})
}

func (a *API) readFile(ctx context.Context, in *readInput) (*huma.StreamResponse, error) {
	s, rec, err := a.openFiles(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	f, info, err := s.Read(at(rec, in.Path), in.Offset)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Length", strconv.FormatInt(max(0, info.Size-in.Offset), 10))
		ctx.SetHeader("Last-Modified", info.Modified.Format(http.TimeFormat))
		stream(fileType, func(w *writer) {
			_, err := io.Copy(w, io.LimitReader(f, max(0, info.Size-in.Offset)))
			if err = errors.Join(err, f.Close(), s.Close()); err != nil {
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http ends the connection: a response that is not whole must not look whole
			}
		}).Body(ctx)
	}}, nil
}

func (a *API) writeFile(ctx context.Context, in *writeInput) (out *infoOutput, err error) {
	o := files.WriteOptions{Parents: in.Parents, New: in.New}
	if in.Mode != "" {
		mode, err := strconv.ParseUint(in.Mode, 8, 12)
		if err != nil {
			return nil, errs.New("writing", in.Path, errs.ErrInvalid, fmt.Sprintf("the mode %q is not octal", in.Mode))
		}
		o.Mode = uint32(mode)
	}
	out = &infoOutput{}
	return out, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error {
		out.Body, err = t.Write(at(rec, in.Path), in.body, o)
		return err
	})
}

func (a *API) makeDir(ctx context.Context, in *makeDirInput) (out *infoOutput, err error) {
	out = &infoOutput{}
	return out, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error {
		out.Body, err = t.MakeDir(at(rec, in.Body.Path), in.Body.Parents)
		return err
	})
}

func (a *API) rename(ctx context.Context, in *renameInput) (*struct{}, error) {
	return nil, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error {
		return t.Rename(at(rec, in.Body.From), at(rec, in.Body.To))
	})
}

func (a *API) remove(ctx context.Context, in *removeInput) (*struct{}, error) {
	return nil, a.inFiles(ctx, in.Name, func(t files.Tree, rec *catalog.Record) error { return t.Remove(at(rec, in.Path), in.All) })
}
