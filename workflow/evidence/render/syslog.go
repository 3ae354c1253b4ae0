package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/leodido/go-syslog/v4/rfc5424"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// Severities of syslog messages, by table 2 of RFC 5424.
const (
	syslogWarning       = 4
	syslogInformational = 6
)

// auditFacility is the facility "log audit" of syslog messages, by table 1 of RFC 5424.
const auditFacility = 13

// maxSequence is the largest value of the parameter sequenceId of a syslog message, by section 7.3.1 of RFC 5424.
const maxSequence = 1<<31 - 1

// syslogTime is the layout of times in syslog messages, with the six digits of a second that section 6.2.3 of
// RFC 5424 allows at most.
const syslogTime = "2006-01-02T15:04:05.000000Z07:00"

// syslogLines writes each record of a sandbox's evidence log as a syslog message of RFC 5424 in a line of its own. The
// process identifier of a message is the sandbox's identifier, its message identifier the type of the record, and its
// text the record in JSON after the word "@cee:", by which log collectors know JSON.
func syslogLines(w io.Writer, r *Record) error {
	name := r.nameOf()
	for _, rec := range r.Records {
		said, err := plainJSON(map[string]any{"sandbox": name, "prev": rec.Prev, "data": rec.Data})
		if err != nil {
			return err
		}
		m := &rfc5424.SyslogMessage{}
		m.SetVersion(1)
		m.SetPriority(auditFacility*8 + severity(rec))
		m.SetTimestamp(when(rec).Format(syslogTime))
		m.SetAppname("snapfs")
		m.SetProcID(rec.Sandbox)
		m.SetMsgID(strings.TrimPrefix(rec.Type, "snapfs."))
		if rec.Seq > 0 && rec.Seq <= maxSequence { // the parameter starts at 1
			m.SetParameter("meta", "sequenceId", fmt.Sprint(rec.Seq))
		}
		m.SetMessage("@cee: " + said)
		line, err := m.String()
		if err != nil {
			return fmt.Errorf("record %d as a syslog message: %w", rec.Seq, err)
		}
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// severity returns the syslog severity of an evidence record: a warning for a refusal, a reached limit or a command
// that failed.
func severity(r audit.Record) uint8 {
	if failedAct(r) {
		return syslogWarning
	}
	return syslogInformational
}

// journalEntries writes each record of a sandbox's evidence log as an entry of systemd's journal, in its export format
// (https://systemd.io/JOURNAL_EXPORT_FORMATS), which systemd-journal-remote reads. The time and the boot of an entry
// are those of the record.
func journalEntries(w io.Writer, r *Record) error {
	name, err := plainJSON(r.nameOf())
	if err != nil {
		return err
	}
	for _, rec := range r.Records {
		said, err := plainJSON(rec.Data)
		if err != nil {
			return err
		}
		var b strings.Builder
		field := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
		field("__REALTIME_TIMESTAMP", when(rec).UnixMicro())
		if rec.Boot != "" {
			field("__MONOTONIC_TIMESTAMP", rec.Up*1000) // microseconds
			field("_BOOT_ID", strings.ReplaceAll(rec.Boot, "-", ""))
		}
		field("SYSLOG_IDENTIFIER", "snapfs")
		field("SYSLOG_FACILITY", auditFacility)
		field("PRIORITY", severity(rec))
		field("MESSAGE", strings.TrimPrefix(rec.Type, "snapfs.")+" in "+name[1:len(name)-1]+": "+said)
		field("SNAPFS_TYPE", rec.Type)
		field("SNAPFS_SANDBOX", rec.Sandbox)
		field("SNAPFS_SEQ", rec.Seq)
		field("SNAPFS_PREV", rec.Prev)
		field("SNAPFS_DATA", said)
		b.WriteByte('\n')
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// plainJSON returns v as JSON in one line of printable ASCII: each other character is escaped, so that no log viewer
// takes a control character from a sandbox for one of its own.
func plainJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range string(data) {
		switch {
		case c >= ' ' && c <= '~':
			b.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return b.String(), nil
}
