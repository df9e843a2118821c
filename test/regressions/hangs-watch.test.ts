/** Regressions, hangs that had no name or that a setting caused: H3 and H15. */

import assert from "node:assert/strict";
import { HoldfastError, type RuntimeOptions, settingsTable } from "holdfast";
import { type DriverCall, faulty, openCpuDriver, openRuntime } from "holdfast/internals";
import type { RecordedEvent, Setting } from "../../src/runtime/index.js";
import { Phases, phaseTitle } from "../../src/runtime/observe/phases.js";
import { type Stall, StallDetector } from "../../src/runtime/observe/watchdog/index.js";
import { openComponents } from "../../src/runtime/open.js";
import { StagingRing } from "../../src/runtime/transfer/staging.js";
import { FakeClock } from "../../src/units/index.js";
import { CallLog } from "../support/call-log.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { withRuntime } from "../support/runtimes.js";

/** The phases of a log that were entered and not left, after matching every exit with its entry. */
function openAtTheEnd(lines: readonly string[]): string[] {
  const open: string[] = [];
  for (const line of lines) {
    const [, title, what] =
      /^(.*): (entered|exited after .*)\n$/.exec(line) ?? assert.fail(`a stray line: ${line}`);
    if (what === "entered") open.push(title ?? "");
    else assert.equal(title, open.pop(), "an exit belongs to the phase that was entered last");
  }
  return open;
}

/** Phases with a faulty log: what to replace in them, given a function that writes a line. */
type PhaseLog = (log: (line: string) => void) => Partial<Phases>;

const endsOnly: PhaseLog = (log) => ({
  run(phase, work, { number } = {}) {
    const result = work();
    log(`${phaseTitle(phase, number)}: exited after 0ms, done`);
    return result;
  },
});

const endsOfSuccessOnly: PhaseLog = (log) => ({
  run(phase, work, details = {}) {
    log(`${phaseTitle(phase, details.number)}: entered`);
    return endsOnly(log).run!(phase, work, details);
  },
});

regressionRow<PhaseLog>({
  row: "H3",
  rule: "every phase logs its entry and its exit, also one that fails",
  sound: () => ({}),
  faults: {
    "a log that reports a phase when it is over": endsOnly,
    "a log that loses the exit of a failed phase": endsOfSuccessOnly,
  },
  check: (inject) => {
    const lines: string[] = [];
    const print = (text: string): void => {
      if (!text.startsWith("holdfast: memory")) lines.push(text);
    };
    const run = (): void =>
      withRuntime({ memory: "64MiB", log: "phases", print }, ({ runtime }) => {
        const target = runtime.persistent.place("weights", "w", [{ name: "w", size: 4 }]).storages[0]!;
        runtime.upload([{ source: new Float32Array(1), target }]);
        runtime.capture("zero", () => runtime.fill(target, 0)).close();
        runtime.step(() => runtime.read(target));
        assert.throws(() => runtime.step(() => assert.fail("a kernel trapped")));
      });
    withMethods(
      Phases.prototype,
      inject((line) => print(`${line}\n`)),
      run,
    );
    assert.deepEqual(openAtTheEnd(lines), [], "phases that were entered and never left");
    const entered = lines.flatMap((line) => /^(.*): entered/.exec(line)?.[1] ?? []);
    assert.deepEqual(entered, ["init", "upload", "capture (zero)", "step 1", "read-back", "step 2", "close"]);
  },
});

/** The information about a hang at the moment of its detection. */
interface Evidence {
  readonly stall: Stall;
  readonly lastLine: string;
  readonly lastEvent: RecordedEvent;
}

/** A run whose third step hangs in its synchronize, after an upload that has ended; on a fake clock. */
function hangInStep3(): Evidence {
  const clock = new FakeClock();
  const device = openCpuDriver({ threads: 1 });
  const driver = faulty(device, ["the 2nd synchronize takes 40s of fake time"], { clock });
  const lines: string[] = [];
  const options = { driver, clock, memory: "64MiB", log: "phases", environment: {} } as const;
  const components = openComponents(options, {
    log: (line) => lines.push(line),
    onMemoryPressure: () => undefined,
  });
  const { sharedStatus, recorder, phases, persistent, transfer, stream, closing } = components;
  const detector = new StallDetector(sharedStatus, 30_000, clock);
  const evidence: Evidence[] = [];
  clock.onTick(() => {
    const stall = detector.examine();
    if (stall) evidence.push({ stall, lastLine: lines.at(-1)!, lastEvent: recorder.recent(1)[0]! });
  });

  const target = persistent.place("weights", "w", [{ name: "w", size: 4 }]).storages[0]!;
  for (const number of [1, 2, 3]) {
    const body = (): void => {
      phases.run("upload", () => transfer.upload([{ source: new Float32Array(1), target }]));
      if (number > 1) components.driver.synchronize(stream);
    };
    phases.run("step", body, { number });
  }
  for (const close of closing.reverse()) close();
  device.close();
  assert.equal(evidence.length, 1, "one stall, reported once");
  return evidence[0]!;
}

regressionRow<(evidence: Evidence) => string>({
  row: "H3",
  rule: "a stall names the phase that has not ended, and the call inside it",
  sound: ({ stall }) => {
    const innermost = stall.phases.at(-1)!;
    return `${phaseTitle(innermost.phase, innermost.number)}, ${stall.call?.call}`;
  },
  faults: {
    "the last log line is taken as the location of the hang": ({ lastLine, stall }) =>
      `${lastLine.split(":")[0]}, ${stall.call?.call}`,
    "the last recorded event is taken as the location of the hang": ({ lastEvent, stall }) =>
      `${lastEvent.label}, ${stall.call?.call}`,
  },
  check: (nameOf) => assert.equal(nameOf(hangInStep3()), "step 3, synchronize"),
});

interface BadSetting {
  readonly options?: Readonly<Record<string, unknown>>;
  readonly environment?: Readonly<Record<string, string>>;
}

const badSettings: readonly BadSetting[] = [
  { environment: { HOLDFAST_MEMORY: "0GiB" } },
  { environment: { HOLDFAST_MEMORY: "-1GiB" } },
  { environment: { HOLDFAST_MEMORY: "64" } },
  { environment: { HOLDFAST_MEMORY: "" } },
  { environment: { HOLDFAST_MEMORY: "1B" } },
  { environment: { HOLDFAST_MEMORY: "4000TiB" } },
  { environment: { HOLDFAST_ARENA: "a lot" } },
  { environment: { HOLDFAST_ARENA: "1B" } },
  { environment: { HOLDFAST_STAGING: "auto" } },
  // Four slots of no bytes: an upload slot by slot would never end.
  { environment: { HOLDFAST_STAGING: "1B" } },
  { environment: { HOLDFAST_STAGING: "4000TiB" } },
  { environment: { HOLDFAST_POISON: "1" } },
  { environment: { HOLDFAST_CAPTURE: "relaxed" } },
  { environment: { HOLDFAST_STALL_AFTER: "0s" } },
  { environment: { HOLDFAST_STALL_AFTER: "30" } },
  { environment: { HOLDFAST_ON_STALL: "ignore" } },
  { environment: { HOLDFAST_REPORTS: "" } },
  { environment: { HOLDFAST_LOG: "debug" } },
  { environment: { HOLDFAST_THREADS: "0" } },
  { environment: { HOLDFAST_THREADS: "1e9" } },
  { environment: { HOLDFAST_BATCH: "0" } },
  { options: { batch: 0 } },
  { options: { memory: 0 } },
  { options: { memory: -1 } },
  { options: { memory: 0.5 } },
  { options: { memory: 1e6 + 0.5, staging: 65536, arena: 65536 } },
  { options: { memory: Number.NaN } },
  { options: { memory: null } },
  { options: { memory: "64MiB", arena: "65MiB" } },
  { options: { memory: "64MiB", arena: 100 } },
  { options: { staging: Number.POSITIVE_INFINITY } },
  { options: { staging: 65536.5 } },
  { options: { poison: 1 } },
  { options: { stallAfter: 0 } },
  { options: { stallAfter: true } },
  { options: { threads: 1.5 } },
  { options: { threads: 1e9 } },
  { options: { chunk: 0 } },
  { options: { chunk: -65536 } },
  { options: { chunk: Number.NaN } },
];

/** What is opened on a driver, and what closes it. */
const pairs: readonly (readonly [DriverCall, DriverCall])[] = [
  ["reserve", "release"],
  ["allocateHost", "freeHost"],
  ["createStream", "destroyStream"],
  ["createEvent", "destroyEvent"],
];

function requireRejection({ options = {}, environment = {} }: BadSetting): void {
  const name = Object.entries({ ...options, ...environment }).join(" and ");
  const device = openCpuDriver({ threads: 1 });
  const log = new CallLog();
  try {
    const runtimeOptions: RuntimeOptions = {
      driver: log.wrap(device),
      environment: { HOLDFAST_STALL_AFTER: "off", ...environment },
      print: () => {},
      ...options,
    };
    assert.throws(() => openRuntime(runtimeOptions).close(), HoldfastError, `${name} was accepted`);
    for (const [opening, closing] of pairs) {
      assert.equal(log.count(closing), log.count(opening), `${name}: ${opening} and ${closing}`);
    }
  } finally {
    device.close();
  }
}

/** The old reader: it replaces invalid values by the default. */
function withLenientReader(run: () => void): void {
  const rows: readonly Setting<unknown>[] = Object.values(settingsTable);
  const injected = rows.reduce(
    (inner, row) => () => withMethods(row, { parse: (text) => Number(text) || row.fallback() }, inner),
    run,
  );
  injected();
}

regressionRow<(run: () => void) => void>({
  row: "H15",
  rule: "a bad setting is an error at the start, by option or by variable, and nothing stays open",
  sound: (run) => run(),
  faults: {
    "a reader that replaces nonsense by the default": withLenientReader,
    "an opening that leaks what it has opened": (run) =>
      withMethods(StagingRing.prototype, { close: () => undefined }, run),
  },
  check: (inject) => inject(() => badSettings.forEach(requireRejection)),
});
