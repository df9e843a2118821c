/**
 * The Trace Event Format by its document, with the further requirements of Perfetto's importer: a strict
 * reader that reports the first error of a trace.
 */

import assert from "node:assert/strict";

type JsonObject = Record<string, unknown>;

export interface CheckedTrace {
  /** Names of the threads that have spans, with their spans in order. */
  readonly spans: ReadonlyMap<string, readonly CheckedSpan[]>;
  /** By `process: counter series`. */
  readonly counters: ReadonlyMap<string, readonly { readonly ts: number; readonly value: number }[]>;
  readonly instants: readonly { readonly track: string; readonly name: string; readonly args: JsonObject }[];
  readonly events: number;
}

export interface CheckedSpan {
  readonly name: string;
  readonly cat: string;
  /** Nanoseconds. */
  readonly begin: number;
  readonly end: number;
  readonly args: JsonObject;
}

const metadata: Readonly<Record<string, [field: string, kind: string]>> = {
  process_name: ["name", "string"],
  process_labels: ["labels", "string"],
  process_sort_index: ["sort_index", "number"],
  thread_name: ["name", "string"],
  thread_sort_index: ["sort_index", "number"],
};

const fieldsOf: Readonly<Record<string, readonly string[]>> = {
  M: ["ph", "pid", "tid", "name", "args"],
  X: ["ph", "pid", "tid", "ts", "dur", "name", "cat", "args"],
  i: ["ph", "pid", "tid", "ts", "s", "name", "cat", "args"],
  C: ["ph", "pid", "tid", "ts", "name", "args"],
};

/** Takes the file's text, like a viewer. */
export function checkTrace(text: string): CheckedTrace {
  const file = JSON.parse(text) as JsonObject;
  assert.deepEqual(Object.keys(file).sort(), ["displayTimeUnit", "otherData", "traceEvents"]);
  assert.ok(file["displayTimeUnit"] === "ms" || file["displayTimeUnit"] === "ns", "displayTimeUnit");
  for (const value of Object.values(file["otherData"] as JsonObject)) assert.equal(typeof value, "string");
  assert.ok(Array.isArray(file["traceEvents"]), "traceEvents is a list");
  const names = new Map<string, string>();
  const threadsProcess = new Map<number, number>();
  const lastTs = new Map<string, number>();
  const open = new Map<string, number[]>();
  const spans = new Map<string, CheckedSpan[]>();
  const counters = new Map<string, { ts: number; value: number }[]>();
  const instants: { track: string; name: string; args: JsonObject }[] = [];

  for (const [index, entry] of (file["traceEvents"] as unknown[]).entries()) {
    const event = entry as JsonObject;
    const where = `event ${index}: ${JSON.stringify(event).slice(0, 200)}`;
    const fields = fieldsOf[String(event["ph"])];
    assert.ok(fields, `${where}: an unknown phase`);
    assert.deepEqual(Object.keys(event).sort(), [...fields].sort(), where);
    const [pid, tid] = [whole(event["pid"], where), whole(event["tid"], where)];
    // Perfetto has one set of thread numbers for all processes, and a process's main thread has the process's number.
    assert.equal(threadsProcess.get(tid) ?? pid, pid, `${where}: a thread of two processes`);
    threadsProcess.set(tid, pid);
    const name = event["name"];
    assert.ok(typeof name === "string" && name !== "", `${where}: no name`);
    const args = event["args"] as JsonObject;
    assert.ok(typeof args === "object" && args !== null && !Array.isArray(args), `${where}: args`);
    for (const value of Object.values(args))
      assert.ok(typeof value === "string" || Number.isFinite(value), `${where}: an unknown arg`);

    if (event["ph"] === "M") {
      const kind = metadata[name];
      assert.ok(kind, `${where}: unknown metadata`);
      assert.deepEqual(Object.keys(args), [kind[0]], where);
      assert.equal(typeof args[kind[0]], kind[1], where);
      const key = name.startsWith("thread") ? `thread ${tid}` : `process ${pid}`;
      if (name.endsWith("_name")) {
        assert.ok(!names.has(key), `${where}: named twice`);
        names.set(key, String(args["name"]));
      }
      continue;
    }
    const ts = nanoseconds(event["ts"], where);
    assert.ok(names.has(`process ${pid}`), `${where}: a process without a name`);
    if (event["ph"] === "C") {
      assert.ok(Object.keys(args).length > 0, `${where}: no series`);
      for (const [series, value] of Object.entries(args)) {
        assert.ok(Number.isFinite(value), `${where}: ${series} is not a number`);
        const key = `${names.get(`process ${pid}`)}: ${name} ${series}`;
        assert.ok(ts >= (counters.get(key)?.at(-1)?.ts ?? 0), `${where}: time goes back`);
        const points = counters.get(key) ?? [];
        counters.set(key, points);
        points.push({ ts, value: Number(value) });
      }
      continue;
    }
    const track = names.get(`thread ${tid}`);
    assert.ok(track !== undefined, `${where}: a thread without a name`);
    assert.equal(typeof event["cat"], "string", where);
    const key = `${pid} ${tid}`;
    assert.ok(ts >= (lastTs.get(key) ?? 0), `${where}: time goes back on its track`);
    lastTs.set(key, ts);
    if (event["ph"] === "i") {
      assert.ok(["g", "p", "t"].includes(String(event["s"])), `${where}: an unknown scope`);
      instants.push({ track, name, args });
      continue;
    }
    const end = ts + nanoseconds(event["dur"], where);
    const sum = Number(event["ts"]) + Number(event["dur"]);
    const around = open.get(key) ?? [];
    open.set(key, around);
    // As some viewers do it: in floats, where a sum may be off by the last bit.
    while (around.length > 0 && (around.at(-1) ?? 0) <= Number(event["ts"])) around.pop();
    assert.ok(sum <= (around.at(-1) ?? Infinity), `${where}: neither inside nor after the enclosing span`);
    around.push(sum);
    const label = `${names.get(`process ${pid}`)}: ${track}`;
    const list = spans.get(label) ?? [];
    spans.set(label, list);
    list.push({ name, cat: String(event["cat"]), begin: ts, end, args });
  }
  return { spans, counters, instants, events: (file["traceEvents"] as unknown[]).length };
}

function whole(value: unknown, where: string): number {
  assert.ok(
    Number.isInteger(value) && Number(value) > 0 && Number(value) < 2 ** 31,
    `${where}: a number of a process`,
  );
  return Number(value);
}

/** Times are microseconds from 0; viewers keep nanoseconds, so finer times are invalid. */
function nanoseconds(value: unknown, where: string): number {
  assert.ok(typeof value === "number" && Number.isFinite(value) && value >= 0, `${where}: a time`);
  const rounded = Math.round(value * 1000);
  assert.ok(
    Math.abs(rounded - value * 1000) < 1e-3 * Math.max(1, value * 1e-6),
    `${where}: finer than a nanosecond`,
  );
  return rounded;
}
