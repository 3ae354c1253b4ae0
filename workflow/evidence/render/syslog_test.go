package render

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leodido/go-syslog/v4/rfc5424"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Syslog messages are read by a parser of RFC 5424, with the whole record in them, and have no character that a
// terminal or a log viewer would act on.
func TestSyslogMessagesAreParsed(t *testing.T) {
	r := sample()
	var out bytes.Buffer
	if err := Lines(&out, r, Syslog); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(r.Records) {
		t.Fatalf("%d lines, want %d", len(lines), len(r.Records))
	}
	warnings := 0
	for i, line := range lines {
		if strings.IndexFunc(line, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
			t.Errorf("line %d has a character that is not printable ASCII: %q", i, line)
		}
		parsed, err := rfc5424.NewParser().Parse([]byte(line))
		if err != nil {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
		m, ok := parsed.(*rfc5424.SyslogMessage)
		if !ok {
			t.Fatalf("line %d: a %T", i, parsed)
		}
		var said struct{ Data map[string]any }
		text, marked := strings.CutPrefix(*m.Message, "@cee: ")
		if err := json.Unmarshal([]byte(text), &said); err != nil || !marked {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
		want, _ := json.Marshal(r.Records[i].Data)
		if got, _ := json.Marshal(said.Data); !bytes.Equal(got, want) {
			t.Errorf("line %d: data %s, want %s", i, got, want)
		}
		if *m.ProcID != "s1" || "snapfs."+*m.MsgID != r.Records[i].Type || !m.Timestamp.Equal(when(r.Records[i])) || *m.Facility != 13 {
			t.Errorf("line %d: %s", i, line)
		}
		if *m.Severity == 4 {
			warnings++
		}
	}
	if warnings != 5 { // a status, two refusals, a limit and a question
		t.Errorf("%d warnings, want 5", warnings)
	}
}

// Entries for the journal are read by systemd-journal-remote, and journalctl shows them with their fields.
func TestTheJournalTakesItsEntries(t *testing.T) {
	const remote = "/lib/systemd/systemd-journal-remote"
	treetest.NeedProgram(t, remote, "journalctl")
	r := sample()
	for i := range r.Records {
		r.Records[i].Boot, r.Records[i].Up = "01234567-89ab-cdef-0123-456789abcdef", int64(i)*10
	}
	var out bytes.Buffer
	if err := Lines(&out, r, Journal); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "taken.journal")
	take := exec.CommandContext(t.Context(), remote, "--output="+file, "-")
	take.Stdin = &out
	if said, err := take.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	show := exec.CommandContext(t.Context(), "journalctl", "--file="+file, "--output=json", "--no-pager")
	show.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	said, err := show.Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(said)) {
		var entry map[string]string
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		var data map[string]any
		if err := json.Unmarshal([]byte(entry["SNAPFS_DATA"]), &data); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(r.Records[n].Data)
		if got, _ := json.Marshal(data); !bytes.Equal(got, want) {
			t.Errorf("entry %d: data %s, want %s", n, got, want)
		}
		if entry["SNAPFS_TYPE"] != r.Records[n].Type || entry["SYSLOG_IDENTIFIER"] != "snapfs" || entry["_BOOT_ID"] != "0123456789abcdef0123456789abcdef" {
			t.Errorf("entry %d: %s", n, line)
		}
		n++
	}
	if n != len(r.Records) {
		t.Errorf("the journal shows %d entries, want %d", n, len(r.Records))
	}
}
