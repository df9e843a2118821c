/**
 * Runs random programs at scale, and writes a summary as JSON. Programs have numbers: shards take different ranges of them.
 *
 *   node dist/test/run-random.js --kind models --from 0 --count 5000
 *   node dist/test/run-random.js --kind ops --device emulator --precision bf16 --out /tmp/ops-bf16.json
 *
 * A failing program is reduced and printed, and the run continues. The exit status is 1 if any failed.
 */

import { writeFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { Device, type DeviceOptions } from "holdfast";
import { openCudaDriver, strict } from "holdfast/internals";
import { GiB } from "../src/units/index.js";
import { readOptions } from "./support/command-line.js";
import { buildEmulator, openEmulator } from "./support/emulator.js";
import { fakeHost } from "./support/fake-host.js";
import {
  type KindDevices,
  modelPrograms,
  opPrograms,
  type Precision,
  type ProgramKind,
} from "./support/random-models/kind.js";
import { fromJson, toJson } from "./support/random-programs/literals.js";

const options = readOptions(import.meta.url, {
  kind: { type: "string", default: "models" },
  from: { type: "string", default: "0" },
  count: { type: "string", default: "1000" },
  device: { type: "string", default: "cpu" },
  precision: { type: "string", default: "f32" },
  out: { type: "string" },
  /** The number of failing programs with one message that are reduced. */
  shrink: { type: "string", default: "2" },
});

/** The number of programs from one sample of fast-check. */
const blockSize = 100;
const shrinkMs = 60_000;

interface Failure {
  readonly number: number;
  readonly message: string;
  readonly program: unknown;
}

const startedAt = performance.now();
const host = fakeHost(4 * GiB, 4 * GiB);
const { devices, close } = open(options.device, options.precision as Precision);
try {
  const failures =
    options.kind === "ops" ? await runKind(opPrograms(devices)) : await runKind(modelPrograms(devices));
  if (failures.length > 0) process.exitCode = 1;
} finally {
  close();
  host.remove();
}

async function runKind<P>(kind: ProgramKind<P>): Promise<readonly Failure[]> {
  const [from, count] = [Number(options.from), Number(options.count)];
  const failures: Failure[] = [];
  const alike = new Map<string, number>();
  let reported = 0;
  for (let number = from; number < from + count; ) {
    const seed = 1 + Math.floor(number / blockSize);
    const block = fc.sample(
      fc.property(kind.any, () => {}),
      { seed, numRuns: blockSize },
    );
    for (let at = number % blockSize; at < blockSize && number < from + count; at++, number++) {
      const [program] = block[at] as unknown as [P];
      // Modules of a trace are collected only after the end of a turn of the event loop.
      await setImmediate();
      const error = errorOf(() => kind.check(asKept(program)));
      if (!error) continue;
      const message = shortMessage(error);
      const sort = sortOf(message);
      const seen = alike.get(sort) ?? 0;
      alike.set(sort, seen + 1);
      const smallest = seen < Number(options.shrink) ? shrink(kind, { seed, at, sort, program }) : program;
      failures.push({ number, message, program: smallest });
      console.log(`program ${number}: ${message}`);
      if (smallest !== program) console.log(toJson({ note: "", program: smallest }));
    }
    if (performance.now() - reported > 30_000) {
      reported = performance.now();
      write(kind, number - from, failures, alike);
    }
  }
  write(kind, count, failures, alike);
  return failures;
}

function write<P>(
  kind: ProgramKind<P>,
  done: number,
  failures: readonly Failure[],
  alike: ReadonlyMap<string, number>,
): void {
  const { user, system } = process.cpuUsage();
  const summary = {
    ...options,
    done,
    failed: failures.length,
    seconds: Math.round((performance.now() - startedAt) / 100) / 10,
    cpuSeconds: Math.round((user + system) / 1e5) / 10,
    sorts: Object.fromEntries(alike),
    counts: kind.counts(),
    failures,
  };
  if (options.out !== undefined) writeFileSync(options.out, `${toJson(summary, 1)}\n`);
  const { failures: _, counts, ...short } = summary;
  console.log(toJson(options.out === undefined ? { ...short, counts } : short));
}

/** By fast-check, and then by removing instructions; the rest fails with the same kind of message. */
function shrink<P>(
  kind: ProgramKind<P>,
  { seed, at, sort, program }: { seed: number; at: number; sort: string; program: P },
): P {
  const until = performance.now() + shrinkMs;
  const failsAlike = (program: P): boolean => {
    if (performance.now() > until) return false;
    const error = errorOf(() => kind.check(asKept(program)));
    return error !== undefined && sortOf(shortMessage(error)).slice(0, 40) === sort.slice(0, 40);
  };
  const property = fc.property(kind.any, (program) => !failsAlike(program));
  const { counterexample } = fc.check(property, { seed, path: `${at}` });
  return kind.prune(asKept(counterexample ? counterexample[0] : program), failsAlike);
}

/** A message without its numbers. */
function sortOf(message: string): string {
  return message.replaceAll(/\d+(\.\d+)?(e-?\d+)?/g, "N").slice(0, 120);
}

function errorOf(check: () => void): Error | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

function shortMessage(error: Error): string {
  const { code } = error as { code?: string };
  return `${code ?? error.name}: ${error.message.split("\n").slice(0, 3).join(" ").slice(0, 300)}`;
}

function asKept<P>(program: P): P {
  return fromJson<P>(toJson(program));
}

function open(name: string, precision: Precision): { readonly devices: KindDevices; close(): void } {
  const common: DeviceOptions = {
    ...{ stallAfter: "off", environment: {}, hostRoot: host.root, threads: 1, poison: true },
    print: () => {},
  };
  const cpuOf = (capture: "on" | "off") => new Device("cpu", { ...common, memory: "512MiB", capture });
  const cpu = cpuOf("off");
  if (name === "cpu") {
    const replaying = cpuOf("on");
    return {
      devices: { direct: cpu, replaying, cpu, precision: "f32" },
      close() {
        for (const opened of [replaying, cpu]) opened.close();
      },
    };
  }
  const isEmulator = name === "emulator";
  if (isEmulator) openEmulator().set("early", 0);
  const environment = isEmulator ? { HOLDFAST_CUDA_PATH: buildEmulator() } : {};
  const drivers = [openCudaDriver({ environment }), openCudaDriver({ environment })];
  const [direct, replaying] = drivers.map(
    (driver, index) =>
      new Device("cuda", {
        ...common,
        ...{ driver: strict(driver), memory: "2GiB", precision, capture: index === 0 ? "off" : "on" },
      }),
  ) as [Device, Device];
  return {
    devices: { direct, replaying, cpu, precision },
    close() {
      for (const opened of [direct, replaying, cpu]) opened.close();
      for (const driver of drivers) driver.close();
    },
  };
}
