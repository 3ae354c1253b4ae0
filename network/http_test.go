package network

import "testing"

func TestRulesWithMethodsPrintAsTheyAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"GET api.example.com/v1/*":                           "GET api.example.com/v1/*",
		"POST,GET https://api.example.com/v1/*":              "POST,GET https://api.example.com/v1/*",
		"a.example, POST , GET  https://B.example,c.example": "a.example,POST,GET https://b.example,c.example",
		"GET https://api.example.com:443/":                   "GET https://api.example.com/",
		"GET https://api.example.com:8443/x":                 "GET https://api.example.com:8443/x",
		"GET http://*.example.com+bytes=1M":                  "GET http://*.example.com+bytes=1M",
		"POST a.example/v1+body=1M+rate=60/m":                "POST a.example/v1+rate=60/m+body=1M",
		"GET,GET a.example:80-90/x/*/y":                      "GET a.example:80-90/x/*/y",
	} {
		r, err := Parse(text)
		if err != nil || r.String() != want {
			t.Errorf("Parse(%q) = %q, %v; want %q", text, r, err, want)
			continue
		}
		if again, err := Parse(want); err != nil || again.String() != want {
			t.Errorf("Parse(%q) = %q, %v", want, again, err)
		}
	}
	for _, text := range []string{
		"GET", "GET,POST", "GET 10.0.0.1/x", "GET a.example/x?y", "GET a.example/../x", "GET a.example/v*/x", "GET a.example/x+tcp", "GET a.example+ech", "GET ftp://a.example",
		"get a.example", "PURGE a.example", "GET u@a.example", "GET a.example b.example", "GET host.snapfs/x", "GET  a.example/%2f",
		"a.example+rate=1/s", "a.example+body=1M", "10.0.0.1+body=1M", "GET a.example+rate=1", "GET a.example+rate=1/d", "GET a.example+rate=0/m", "GET a.example+rate=1.5/m", "GET a.example+rate=1/s+rate=2/s",
		"GET a.example+body=0", "GET a.example+body=",
	} {
		if r, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %q; want an error", text, r)
		}
	}
}

func TestRulesAllowRequests(t *testing.T) {
	r, err := Parse("GET api.example.com/v1/*,POST https://api.example.com/v1/messages,plain.example:443")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    Request
		want string
	}{
		{Request{"API.example.com.", 443, true, "GET", "/v1/x"}, "GET api.example.com/v1/*"},
		{Request{"api.example.com", 80, false, "GET", "/v1/x"}, "GET api.example.com/v1/*"},
		{Request{"api.example.com", 443, true, "POST", "/v1/messages"}, "POST https://api.example.com/v1/messages"},
		{Request{"api.example.com", 443, false, "POST", "/v1/messages"}, ""},
		{Request{"api.example.com", 80, true, "POST", "/v1/messages"}, ""},
		{Request{"api.example.com", 443, true, "DELETE", "/v1/x"}, ""},
		{Request{"plain.example", 443, true, "DELETE", "/any"}, "plain.example:443"},
		{Request{"other.example", 443, true, "GET", "/v1/x"}, ""},
	} {
		if got, ok := r.Request(c.q); got != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %q, %v", c.q, got, ok)
		}
	}
	if !r.Reads("api.example.com", 80) || r.Reads("plain.example", 443) || r.Reads("other.example", 443) || !r.HasMethods() || r.Len() != 3 {
		t.Error("Reads, HasMethods or Len is wrong")
	}
}

func TestBothKeepsMethods(t *testing.T) {
	for _, c := range [][3]string{
		{"api.example.com:443", "GET https://api.example.com/v1/*", "GET https://api.example.com/v1/*"},
		{"GET https://api.example.com/v1/*", "api.example.com:443", "GET https://api.example.com/v1/*"},
		{"GET,POST api.example.com/v1/*", "GET api.example.com/v1/x", "GET api.example.com/v1/x"},
		{"GET api.example.com/v1/*", "POST api.example.com/v1/*", ""},
		{"GET https://api.example.com", "GET http://api.example.com", ""},
	} {
		a, err := Parse(c[0])
		b, err2 := Parse(c[1])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if got := a.Both(b).String(); got != c[2] {
			t.Errorf("%q and %q: %q; want %q", c[0], c[1], got, c[2])
		}
	}
}
