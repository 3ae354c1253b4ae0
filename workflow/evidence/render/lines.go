package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// The formats in which [Lines] writes the evidence of a sandbox for other systems.
const (
	OCSF        = "ocsf"
	CloudEvents = "cloudevents"
	OTLP        = "otlp"
	Syslog      = "syslog"
	Journal     = "journal"
)

// Formats lists the names of the formats in which [Lines] can write the evidence of a sandbox.
func Formats() []string { return []string{OCSF, CloudEvents, OTLP, Syslog, Journal} }

// ocsfVersion is the version of the OCSF schema (events of security products) that the written events name.
const ocsfVersion = "1.8.0"

// Lines writes the records of r, a sandbox's verified evidence, to w in the format, one of [Formats]. In OCSF
// and CloudEvents each record is a line of JSON, in syslog a line of text, in the journal's format several
// lines; in OTLP a single line of JSON has all records.
func Lines(w io.Writer, r *Record, format string) error {
	switch format {
	case Syslog:
		return syslogLines(w, r)
	case Journal:
		return journalEntries(w, r)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if format == OTLP {
		return e.Encode(otlp(r))
	}
	name := r.nameOf()
	for _, rec := range r.Records {
		var event map[string]any
		switch format {
		case CloudEvents:
			event = cloudEvent(rec, name)
		case OCSF:
			event = ocsf(rec, name)
		default:
			return fmt.Errorf("no format %q", format)
		}
		if err := e.Encode(event); err != nil {
			return err
		}
	}
	return nil
}

// cloudEvent returns a record of an evidence log as a CloudEvents 1.0 event. The event's id is the number of
// the record in the log of its sandbox, which is the source. name is the sandbox's name.
func cloudEvent(r audit.Record, name string) map[string]any {
	return map[string]any{
		"specversion": "1.0", "id": strconv.FormatInt(r.Seq, 10), "source": "urn:snapfs:evidence:" + r.Sandbox, "type": r.Type,
		"subject": name, "time": r.Time, "datacontenttype": "application/json", "prev": r.Prev, "data": r.Data,
	}
}

// Numbers that the schema OCSF, a format for security events, gives to classes of events, their categories,
// and activities. [Lines] writes them for other systems.
const (
	categorySystem, categoryNetwork, categoryApplication = 1, 4, 6

	classProcess, classNetwork, classAPI = 1007, 4001, 6003

	activityLaunch, activityTerminate                             = 1, 2        // of classProcess
	activityOpen, activityRefuse                                  = 1, 5        // of classNetwork
	activityCreate, activityUpdate, activityDelete, activityOther = 1, 3, 4, 99 // of classAPI

	severityInformational, severityMedium = 1, 3
	statusSuccess, statusFailure          = 1, 2
)

// ocsf returns a record of an evidence log as an event of OCSF: a command as Process Activity, a decision of
// the network proxy as Network Activity, anything else as API Activity of snapfs. name is the sandbox's name.
func ocsf(r audit.Record, name string) map[string]any {
	d := r.Data
	product := map[string]any{"name": "snapfs", "vendor_name": "snapfs"}
	e := map[string]any{
		"time": when(r).UnixMilli(), "severity_id": severityInformational, "status_id": statusSuccess, "message": r.Type,
		"metadata": map[string]any{"version": ocsfVersion, "product": product, "uid": r.Sandbox + "/" + strconv.FormatInt(r.Seq, 10), "sequence": r.Seq, "event_code": r.Type},
		"unmapped": map[string]any{"sandbox": r.Sandbox, "prev": r.Prev, "data": d},
	}
	class := func(category, id, activity int) {
		e["category_uid"], e["class_uid"], e["activity_id"], e["type_uid"] = category, id, activity, id*100+activity
	}
	failed := func() { e["status_id"], e["severity_id"] = statusFailure, severityMedium }
	device := map[string]any{"type_id": 0, "name": name, "uid": r.Sandbox} // 0: unknown
	switch r.Type {
	case events.CommandStarted, events.CommandEnded, events.CommandRefused:
		class(categorySystem, classProcess, activityLaunch)
		program := text(d, "program")
		if program == "" {
			program = text(d, "run")
		}
		e["device"], e["actor"] = device, map[string]any{"app_name": "snapfs"}
		e["process"] = map[string]any{"name": program, "uid": text(d, "run")}
		switch {
		case r.Type == events.CommandEnded:
			class(categorySystem, classProcess, activityTerminate)
			if e["exit_code"] = number(d, "status"); number(d, "status") != 0 {
				failed()
			}
		case r.Type == events.CommandRefused:
			failed()
		}
	case events.NetworkRefused, events.NetworkAllowed:
		class(categoryNetwork, classNetwork, activityOpen)
		e["dst_endpoint"] = map[string]any{"hostname": text(d, "host"), "port": number(d, "port")}
		e["device"] = device
		if r.Type == events.NetworkRefused {
			class(categoryNetwork, classNetwork, activityRefuse)
			failed()
		}
	default:
		class(categoryApplication, classAPI, activityOf(r.Type))
		if e["activity_id"] == activityOther {
			e["activity_name"] = strings.TrimPrefix(r.Type, "snapfs.")
		}
		user := map[string]any{"name": "unknown"}
		if by := who(d); by != "" {
			user = map[string]any{"name": by, "uid": text(object(d, "by"), "uid")}
		}
		e["actor"] = map[string]any{"user": user, "app_name": "snapfs"}
		e["api"] = map[string]any{"operation": strings.TrimPrefix(r.Type, "snapfs."), "service": map[string]any{"name": "snapfs"}}
		e["src_endpoint"] = map[string]any{"name": name, "uid": r.Sandbox}
		if failedAct(r) {
			failed()
		}
	}
	return e
}

// failedAct reports whether a record of an evidence log is about a refusal, a reached limit, a request for
// approval or a command that failed. The event made from it then has the status of a failure.
func failedAct(r audit.Record) bool {
	return number(r.Data, "status") != 0 || strings.HasSuffix(r.Type, ".refused") || r.Type == events.LimitReached || r.Type == events.ApprovalAsked
}

// activityOf returns the OCSF number of the activity (create, update, delete, other) for a type of record of
// an evidence log.
func activityOf(kind string) int {
	switch kind {
	case events.SandboxCreated, events.SnapshotCreated:
		return activityCreate
	case events.SandboxRemoved:
		return activityDelete
	case events.SandboxRenamed, events.SandboxRefreshed, events.SandboxRolledBack, events.ChangesPromoted, events.PromotionUndone, events.PromotionRedone:
		return activityUpdate
	}
	return activityOther
}

// otlp returns the records of an evidence log as an ExportLogsServiceRequest of OTLP in JSON, as the endpoint
// /v1/logs takes it.
func otlp(r *Record) map[string]any {
	attribute := func(key string, value any) map[string]any {
		switch v := value.(type) {
		case bool:
			return map[string]any{"key": key, "value": map[string]any{"boolValue": v}}
		case float64:
			return map[string]any{"key": key, "value": map[string]any{"intValue": strconv.FormatInt(int64(v), 10)}}
		}
		return map[string]any{"key": key, "value": map[string]any{"stringValue": text(map[string]any{"v": value}, "v")}}
	}
	logs := []any{}
	for _, rec := range r.Records {
		severity, word := 9, "INFO"
		if failedAct(rec) {
			severity, word = 13, "WARN"
		}
		attributes := []any{attribute("snapfs.sandbox.id", rec.Sandbox), attribute("snapfs.record.seq", float64(rec.Seq)), attribute("snapfs.record.prev", rec.Prev)}
		for _, key := range sortedKeys(rec.Data) {
			attributes = append(attributes, attribute("snapfs."+key, rec.Data[key]))
		}
		at := strconv.FormatInt(when(rec).UnixNano(), 10)
		logs = append(logs, map[string]any{
			"timeUnixNano": at, "observedTimeUnixNano": at, "severityNumber": severity, "severityText": word, "eventName": rec.Type,
			"body": map[string]any{"stringValue": rec.Type}, "attributes": attributes,
		})
	}
	return map[string]any{"resourceLogs": []any{map[string]any{
		"resource":  map[string]any{"attributes": []any{attribute("service.name", "snapfs"), attribute("snapfs.sandbox.name", r.nameOf())}},
		"scopeLogs": []any{map[string]any{"scope": map[string]any{"name": "snapfs/evidence"}, "logRecords": logs}},
	}}}
}
