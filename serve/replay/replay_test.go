package replay

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// sum stands for a request.
func sum(text string) Sum { return sha256.Sum256([]byte(text)) }

// serve serves the request with this key as do says, and reports whether it did.
func serve(t *testing.T, s *Store, key string, do http.HandlerFunc) (r *Response, first bool) {
	t.Helper()
	if r, first = s.Find(sum(key), sum("body")); first {
		w := &Recorder{ResponseWriter: httptest.NewRecorder()}
		do(w, nil)
		s.Finish(sum(key), r, w)
	}
	return r, first
}

func TestARepeatedRequestGetsTheFirstResponse(t *testing.T) {
	s := &Store{}
	made := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("{}"))
	}
	if _, first := serve(t, s, "a", made); !first {
		t.Error("the first request is a repetition")
	}
	r, first := serve(t, s, "a", made)
	<-r.Done()
	if first || r.Status != http.StatusCreated || string(r.Data) != "{}" || r.Header.Get("Content-Type") != "application/json" || r.Body != sum("body") {
		t.Errorf("%+v, %v", r, first)
	}
	if _, first := serve(t, s, "b", made); !first {
		t.Error("another key is a repetition")
	}
}

func TestWhatCannotBeRepeatedIsServedAgain(t *testing.T) {
	s := &Store{Streams: []string{"application/x-ndjson"}}
	for name, do := range map[string]http.HandlerFunc{
		"a server error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a stream": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = w.Write([]byte("{}\n"))
		},
		"a text": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x-diff")
			_, _ = w.Write([]byte("-a\n+b\n"))
		},
		"a long response": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Repeat("x", maxLength)))
			_, _ = w.Write([]byte("x"))
		},
		"no response": func(http.ResponseWriter, *http.Request) {},
	} {
		for range 2 {
			if _, first := serve(t, s, name, do); !first {
				t.Errorf("%s is repeated", name)
			}
		}
	}
}

func TestTooManyKeysAreRefused(t *testing.T) {
	s := &Store{}
	for i := range maxCount {
		serve(t, s, strings.Repeat("k", i), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	if r, first := s.Find(sum("more"), sum("")); r != nil || first {
		t.Errorf("%+v", r)
	}
	if r, first := s.Find(sum(""), sum("")); r == nil || first {
		t.Error("a known key is refused")
	}
}
