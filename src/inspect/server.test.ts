/** The inspector's answers: the data of a run's folder, live updates, and messages about damage. */

import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, readdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { listenTo, openTestInspector } from "../../test/support/inspector-client.js";
import { samplePlan } from "../../test/support/sample-plan.js";
import { sampleIncidents, writeSampleRun } from "../../test/support/sample-run.js";
import type { MemorySample, PlanRecord } from "../records/index.js";
import type { RankTable, RunDetail, RunLine } from "./page/wire.js";

const root = makeFolder();
const run = writeSampleRun(root, "older", {
  steps: 300,
  startMs: Date.UTC(2026, 0, 1),
  incidents: sampleIncidents(),
});
writeSampleRun(root, "newer & odd", { steps: 10, startMs: Date.UTC(2026, 0, 2), state: "running" });
mkdirSync(join(root, "begun", "checkpoints"), { recursive: true });
const pageFolder = makeFolder();
const inspector = await openTestInspector({ root, pageFolder: join(pageFolder, "none") });

interface StepsAnswer {
  readonly rows: number;
  readonly from: number;
  readonly to: number;
  readonly columns: Readonly<Record<string, readonly (number | null)[]>>;
}

test("the list has every run, the newest first, and a broken one with its note", async () => {
  const lines = await inspector.json<RunLine[]>("/api/runs");
  assert.deepEqual(
    lines.map(({ name, state, isLive, step }) => [name, state, isLive, step]),
    [
      ["newer & odd", "running", true, 10],
      ["older", "finished", false, 300],
      ["begun", "broken", false, null],
    ],
  );
  assert.match(lines[2]?.note ?? "", /has no run\.json/);
  assert.equal(lines[1]?.device, "CPU (a sample)");
});

test("a run has its settings, status, results, metrics, plans and incidents", async () => {
  const detail = await inspector.json<RunDetail>("/api/runs/older");
  assert.equal(detail.run?.settings["batch"], 32);
  assert.equal(detail.status?.state, "finished");
  assert.equal(detail.results?.["wf_mean"], 0.55);
  assert.equal(detail.metrics.length, 8);
  const { calls, memory, name, inputs } = samplePlan();
  assert.deepEqual(detail.plans, [
    { index: 0, name, inputs, mode: "graph", calls: calls.length, peak: memory.peak },
  ]);
  assert.equal(detail.incidents.length, 5);
  assert.deepEqual(detail.messages, []);
  assert.equal((await inspector.json<RunDetail>("/api/runs/newer%20%26%20odd")).name, "newer & odd");
});

test("a distributed run has a line for each rank, and damaged ones are named", async () => {
  const other = makeFolder();
  const distributed = writeSampleRun(other, "ranks");
  distributed.writeRanks([10, 18]);
  distributed.close();
  const served = await openTestInspector({ root: other });
  const { ranks } = await served.json<RankTable>("/api/runs/ranks/ranks");
  assert.deepEqual(
    ranks.map(({ rank, host, pid, isSlow, points }) => [rank, host, pid, isSlow, points.length]),
    [
      [0, "node0", 4000, false, 20],
      [1, "node0", 4001, true, 20],
    ],
  );
  assert.equal((await served.json<RunDetail>("/api/runs/ranks")).ranks, 2);
  appendFileSync(join(other, "ranks", "steps.rank-1.jsonl"), '{"step": "x"}\n');
  const { messages } = await served.json<RunDetail>("/api/runs/ranks");
  assert.match(messages.join(), /Line 21 of steps\.rank-1\.jsonl is ignored: time is not a time/);
  writeFileSync(join(other, "ranks", "ranks.json"), '{"ranks": [{"rank": "../1"}]}');
  const damaged = await served.json<RunDetail>("/api/runs/ranks");
  assert.equal(damaged.ranks, 0);
  assert.match(damaged.messages.join(), /ranks\[0\]\.rank is not a whole number/);
  assert.deepEqual(await inspector.json<RankTable>("/api/runs/older/ranks"), { ranks: [] });
});

test("steps come as points, of a range too, and an invalid request is rejected", async () => {
  const whole = await inspector.json<StepsAnswer>("/api/runs/older/steps");
  assert.deepEqual([whole.rows, whole.from, whole.to, whole.columns["step"]?.length], [300, 0, 300, 300]);
  const range = await inspector.json<StepsAnswer>("/api/runs/older/steps?from=100&to=200&points=10");
  assert.deepEqual([range.rows, range.from, range.to, range.columns["loss"]?.length], [300, 100, 200, 10]);
  assert.equal(range.columns["step"]?.at(-1), 200);
  for (const query of ["from=-1", "to=x", "points=0", "points=1e9", "from=1.5", "from="]) {
    const { status, text } = await inspector.ask(`/api/runs/older/steps?${query}`);
    assert.equal(status, 400, query);
    assert.match((JSON.parse(text) as { error: string }).error, /must be a whole number/);
  }
});

test("a loss that is not finite is null in the answer", async () => {
  const other = makeFolder();
  writeSampleRun(other, "a", { steps: 3, lossAt: (step) => (step === 2 ? Number.NaN : 1) });
  const { json } = await openTestInspector({ root: other });
  assert.deepEqual((await json<StepsAnswer>("/api/runs/a/steps")).columns["loss"], [1, null, 1]);
});

test("a plan, the memory and the phases are sent unchanged", async () => {
  const plan = await inspector.json<PlanRecord>("/api/runs/older/plans/0");
  const written = samplePlan({ time: Date.UTC(2026, 0, 1) });
  assert.deepEqual(JSON.stringify(plan), JSON.stringify(written));
  const memory = await inspector.json<MemorySample[]>("/api/runs/older/memory");
  assert.deepEqual(
    memory.map(({ step }) => step),
    [0, 300],
  );
  run.appendPhases(Array.from({ length: 3000 }, (_, index) => `line ${index}`));
  const phases = await inspector.json<string[]>("/api/runs/older/phases");
  assert.deepEqual([phases.length, phases.at(-1)], [2000, "line 2999"]);
});

test("of many memory samples, the peaks and the last one are sent", async () => {
  const folder = makeFolder();
  const { path } = writeSampleRun(folder, "a", { steps: 1 });
  const { json } = await openTestInspector({ root: folder });
  const [sample] = await json<MemorySample[]>("/api/runs/a/memory");
  const lines = Array.from({ length: 9000 }, (_, time) =>
    JSON.stringify({ ...sample, time, used: time === 4321 ? 10 : time % 5 }),
  );
  writeFileSync(join(path, "memory.jsonl"), `${lines.join("\n")}\n`);
  const memory = await json<MemorySample[]>("/api/runs/a/memory");
  assert.ok(memory.length <= 2001, `${memory.length} samples`);
  assert.ok(memory.some(({ time }) => time === 4321));
  assert.equal(memory.at(-1)?.time, 8999);
});

test("exports are downloads with a name, and HEAD says the same without a body", async () => {
  const steps = await inspector.ask("/api/runs/older/export/steps.csv");
  assert.equal(steps.headers["content-disposition"], 'attachment; filename="older-steps.csv"');
  assert.equal(steps.text.split("\r\n").length, 302);
  const metrics = await inspector.ask("/api/runs/newer%20%26%20odd/export/metrics.csv");
  assert.equal(metrics.headers["content-disposition"], 'attachment; filename="newer_odd-metrics.csv"');
  const head = await inspector.ask("/api/runs/older/export/metrics.csv", {}, "HEAD");
  assert.deepEqual([head.status, head.text], [200, ""]);
  assert.ok(Number(head.headers["content-length"]) > 0);
});

test("the trace is JSON and the snapshot a pickle; a missing plan has no snapshot", async () => {
  const trace = await inspector.json<{ traceEvents: unknown[] }>("/api/runs/older/export/trace.json");
  assert.ok(trace.traceEvents.length > 0);
  const snapshot = await inspector.ask("/api/runs/older/export/memory-0.pickle");
  assert.equal(snapshot.status, 200);
  assert.equal((await inspector.ask("/api/runs/older/export/memory-7.pickle")).status, 404);
});

test("a missing resource is 404, in one line of JSON", async () => {
  for (const path of [
    "/nothing",
    "/api",
    "/api/runs/",
    "/api/runs/none",
    "/api/runs/older/plans/1",
    "/api/runs/older/plans/x",
    "/api/runs/older/more",
    "/api/runs/older/steps/more",
    "/api/runs/older/export/passwd",
    "/api/runs/older/export/steps.csv/more",
    "/assets/none.js",
  ]) {
    const { status, text } = await inspector.ask(path);
    assert.equal(status, 404, path);
    assert.deepEqual(Object.keys(JSON.parse(text) as object), ["error"]);
  }
});

test("without a built page the list of runs is shown as plain text, with names that can't become markup", async () => {
  const odd = makeFolder();
  writeSampleRun(odd, "<script>alert(1)<", { steps: 1 });
  const { ask } = await openTestInspector({ root: odd, pageFolder: join(pageFolder, "none") });
  const { status, headers, text } = await ask("/");
  assert.equal(status, 200);
  assert.match(headers["content-type"] ?? "", /^text\/html/);
  assert.match(text, /<td>&#60;script&#62;alert\(1\)&#60;<\/td><td>finished<\/td><td>1 of 1<\/td>/);
});

test("the page and its files come from a list made at the start; its inline scripts are allowed by their digests", async () => {
  const folder = makeFolder();
  mkdirSync(join(folder, "charts"));
  const html =
    '<!doctype html><script type="importmap">{"imports":{}}</script><script src="/assets/a.js"></script>';
  writeFileSync(join(folder, "index.html"), html);
  writeFileSync(join(folder, "charts", "a.js"), "export {};");
  writeFileSync(join(folder, "a.secret"), "no");
  const { ask } = await openTestInspector({ root, pageFolder: folder });
  const page = await ask("/");
  assert.equal(page.text, html);
  const policy = String(page.headers["content-security-policy"]);
  const [, digests] = /script-src 'self'([^;]*)/.exec(policy) ?? [];
  assert.match(digests ?? "", /^ 'sha256-[\w+/]{43}='$/);
  assert.doesNotMatch(policy, /unsafe/);
  const script = await ask("/assets/charts/a.js");
  assert.equal(script.headers["content-type"], "text/javascript; charset=utf-8");
  const again = await ask("/assets/charts/a.js", { "If-None-Match": String(script.headers.etag) });
  assert.deepEqual([again.status, again.text], [304, ""]);
  writeFileSync(join(folder, "late.js"), "no");
  for (const path of ["a.secret", "late.js", "index.html", "charts", "charts/../a.secret"])
    assert.equal((await ask(`/assets/${path}`)).status, 404, path);
});

test("every answer has headers against other sites, MIME sniffing and caching", async () => {
  for (const path of ["/", "/api/runs", "/nothing", "/api/runs/older/export/steps.csv"]) {
    const { headers } = await inspector.ask(path);
    assert.equal(headers["cross-origin-resource-policy"], "same-origin", path);
    assert.equal(headers["x-content-type-options"], "nosniff", path);
    assert.equal(headers["referrer-policy"], "no-referrer", path);
    assert.match(
      String(headers["content-security-policy"]),
      /default-src 'none'.*frame-ancestors 'none'/,
      path,
    );
    assert.equal(headers["access-control-allow-origin"], undefined, path);
  }
});

test("a listener receives the status, new rows, and each changed file", async () => {
  const folder = makeFolder();
  const live = writeSampleRun(folder, "live", { steps: 5, state: "running", incidents: [] });
  const { port, json } = await openTestInspector({ root: folder, pollMs: 5 });
  const { next, close } = await listenTo(port, "/api/runs/live/live");
  const status = await next(({ name }) => name === "status");
  assert.equal((status.data as { step: number }).step, 5);
  assert.deepEqual((await next(({ name }) => name === "rows")).data, { rows: 5 });
  live.appendSteps(7);
  assert.deepEqual((await next(({ name }) => name === "rows")).data, { rows: 12 });
  assert.equal((await json<StepsAnswer>("/api/runs/live/steps")).rows, 12);
  const changes: readonly (readonly [string, () => void])[] = [
    ["plans", () => live.appendPlan(samplePlan({ name: "another" }))],
    ["memory", () => live.appendMemory()],
    ["incidents", () => live.appendIncident(sampleIncidents()[0]!)],
    ["results", () => live.writeResults()],
    ["metrics", () => appendFileSync(join(live.path, "metrics.jsonl"), '{"step":12}\n')],
  ];
  for (const [what, change] of changes) {
    change();
    await next(({ name, data }) => name === "changed" && (data as { what: string }).what === what);
  }
  live.dropAfter(6);
  assert.deepEqual((await next(({ name }) => name === "rows")).data, { rows: 6 });
  live.writeStatus("finished");
  await next(({ name, data }) => name === "status" && (data as { state: string }).state === "finished");
  close();
});

test("HEAD of the live events has their type and ends at once", async () => {
  const { status, headers, text } = await inspector.ask("/api/runs/older/live", {}, "HEAD");
  assert.deepEqual([status, headers["content-type"], text], [200, "text/event-stream; charset=utf-8", ""]);
});

test("a second listener receives the current state at once", async () => {
  const folder = makeFolder();
  writeSampleRun(folder, "a", { steps: 4 });
  const { port } = await openTestInspector({ root: folder, pollMs: 600_000 });
  const first = await listenTo(port, "/api/runs/a/live");
  await first.next(({ name }) => name === "rows");
  const second = await listenTo(port, "/api/runs/a/live");
  await second.next(({ name }) => name === "status");
  assert.deepEqual((await second.next(({ name }) => name === "rows")).data, { rows: 4 });
  first.close();
  second.close();
});

test("a folder with a truncated, empty or replaced file is answered, with a message or without its data", async () => {
  const folder = makeFolder();
  const { path } = writeSampleRun(folder, "a", { steps: 30, incidents: sampleIncidents() });
  const names = readdirSync(path).filter((name) => name.includes("."));
  const { ask } = await openTestInspector({ root: folder });
  const damage = fc.oneof(
    fc.record({ cut: fc.nat(3000) }),
    fc.record({
      text: fc.oneof(fc.json(), fc.string(), fc.constantFrom("", "null\n", "[]\n", "{}\n", "\0\0\n")),
    }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.constantFrom(...names), damage), { maxLength: 3 }),
      async (list) => {
        rmSync(path, { recursive: true });
        writeSampleRun(folder, "a", { steps: 30, incidents: sampleIncidents() }).close();
        for (const [name, how] of list) {
          if ("cut" in how) truncateSync(join(path, name), how.cut);
          else writeFileSync(join(path, name), how.text);
        }
        for (const rest of ["", "/a", "/a/steps", "/a/memory", "/a/phases", "/a/export/steps.csv"]) {
          const { status, text } = await ask(`/api/runs${rest}`);
          // 503: the file is not a step log, so there is no data.
          const isTold = status === 200 || (status === 503 && /steps/.test(rest));
          assert.ok(isTold, `${rest}: ${status} ${text}`);
          if (!rest.endsWith("csv")) JSON.parse(text);
        }
      },
    ),
    { numRuns: effort({ quick: 12, thorough: 60 }) },
  );
});

test("a damaged line is a message, and the run's state is still sent", async () => {
  const folder = makeFolder();
  const { path } = writeSampleRun(folder, "a", { steps: 3 });
  appendFileSync(join(path, "plans.jsonl"), "{broken\n");
  appendFileSync(join(path, "metrics.jsonl"), "{broken\n");
  writeFileSync(join(path, "steps.bin"), "x".repeat(600));
  const { json } = await openTestInspector({ root: folder });
  const { messages, status } = await json<RunDetail>("/api/runs/a");
  assert.equal(status?.state, "finished");
  for (const pattern of [
    /of metrics\.jsonl is not JSON/,
    /Line 2 of plans\.jsonl/,
    /steps\.bin is not a step log/,
  ])
    assert.match(messages.join("\n"), pattern);
});

test("an occupied port, an invalid token and an invalid address are rejected in one line", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  after(() => other.close());
  await new Promise((resolve) => other.once("listening", resolve));
  const { port } = other.address() as AddressInfo;
  const wrong = [
    [{ port }, /another program uses this port/],
    [{ token: "a b" }, /A token has 8 to 200/],
    [{ host: "a b" }, /is not an address/],
  ] as const;
  for (const [options, message] of wrong)
    await assert.rejects(openTestInspector({ root, ...options }), { code: "BAD_ARGUMENT", message });
});

test("the address opens the run that was named", async () => {
  const { url } = await openTestInspector({ root: run.path });
  assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/#\/older$/);
});
