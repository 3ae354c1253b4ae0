package e2b

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/files"
)

// A writtenFile describes, in the reply to an upload, a file that was written to a sandbox.
type writtenFile struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// metadataHeader begins the names of the headers of an upload that hold the metadata of the uploaded files.
const metadataHeader = "X-Metadata-"

// metadataOf returns the metadata in the headers of an upload, which all of its files get.
func metadataOf(h http.Header) map[string]string {
	var values map[string]string
	for name, list := range h {
		if short, ok := strings.CutPrefix(name, metadataHeader); ok && short != "" && len(list) > 0 {
			if values == nil {
				values = map[string]string{}
			}
			values[strings.ToLower(short)] = list[0]
		}
	}
	return values
}

// A timedWriter writes a reply. If the client reads nothing for the time limit, writes fail, because a
// stalled download occupies one of the processes that read the sandbox's files.
type timedWriter struct {
	w       io.Writer
	control *http.ResponseController
	limit   time.Duration
}

func (t *timedWriter) Write(p []byte) (int, error) {
	_ = t.control.SetWriteDeadline(time.Now().Add(t.limit)) // a test's recorder has no deadline
	return t.w.Write(p)
}

// A timedReader reads the body of an upload. If the client sends nothing for the time limit, reads fail, so
// that a stalled client occupies nothing for long.
type timedReader struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration
	late    error // ErrInvalid, once a piece did not come in time
}

func (t *timedReader) Read(p []byte) (int, error) {
	_ = t.control.SetReadDeadline(time.Now().Add(t.limit)) // a test's recorder has no deadline
	n, err := t.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.late = errs.With("reading the request", "", errors.Join(errs.ErrInvalid, err))
		return n, t.late
	case err != nil:
		_ = t.control.SetReadDeadline(time.Time{}) // the server goes on to look whether the client is there
	}
	return n, err
}

// download handles a request for the content of a file in a sandbox.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	b := sandboxOf(r.Context())
	begun := false
	err := s.checkUser(callOf(r.Context()).user)
	if err == nil {
		err = s.resourcesOf(b).withFiles(r.Context(), b, func(t tree) error {
			at := b.path(r.URL.Query().Get("path"))
			from, info, err := t.Read(at, 0)
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(at)}))
			w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
			begun = true
			_, err = io.CopyN(&timedWriter{w, http.NewResponseController(w), s.o.stall}, from, info.Size)
			return errors.Join(err, from.Close())
		})
	}
	switch {
	case err == nil:
	case begun:
		panic(http.ErrAbortHandler) //nolint:forbidigo // the way of net/http to end a reply that is not whole
	default:
		fail(w, err)
	}
}

// upload handles a request that writes one file from the body, or each file of a form, to a sandbox. It makes
// missing parents.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	b := sandboxOf(r.Context())
	written, metadata := []writtenFile{}, metadataOf(r.Header)
	body := &timedReader{ReadCloser: r.Body, control: http.NewResponseController(w), limit: s.o.stall}
	r.Body = body
	err := s.checkUser(callOf(r.Context()).user)
	if err == nil {
		err = s.resourcesOf(b).withFiles(r.Context(), b, func(t tree) error {
			write := func(name string, from io.Reader) error {
				at := b.path(name)
				if _, err := t.Write(at, from, files.WriteOptions{Parents: true}); err != nil {
					return err
				}
				if err := t.SetAttributes(attributePrefix, at, metadata); err != nil {
					return err
				}
				written = append(written, writtenFile{path.Base(at), "file", at, metadata})
				return nil
			}
			return uploaded(r, write)
		})
	}
	if body.late != nil {
		err = body.late // which has also ended the request's context, and so the write
	}
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, written)
}

// uploaded calls write with the name and the content of each file of an upload.
func uploaded(r *http.Request, write func(name string, from io.Reader) error) error {
	const op = "writing"
	invalid := func(err error) error { return &errs.Error{Op: op, Kind: errs.ErrInvalid, Err: err} }
	name := r.URL.Query().Get("path")
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var body io.Reader = r.Body
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return invalid(err)
		}
		body = unpacked
	default:
		return invalid(errors.New("the content encoding " + encoding + " is not supported"))
	}
	if err != nil || kind != "multipart/form-data" {
		if name == "" {
			return invalid(errors.New("the request names no path"))
		}
		return write(name, body)
	}
	form := multipart.NewReader(body, params["boundary"])
	for n := 0; ; n++ {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case err != nil:
			return invalid(err)
		case part.FormName() != "file":
			continue
		}
		to := name
		if to == "" {
			// Not FileName, which leaves out the directories.
			_, disposition, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if to = disposition["filename"]; err != nil || to == "" {
				return invalid(errors.New("a part of the form names no file"))
			}
		}
		if err := write(to, part); err != nil {
			return err
		}
	}
}
