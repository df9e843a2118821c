/** Regressions, hangs when memory is short: H9 to H12. */

import assert from "node:assert/strict";
import { type ErrorCode, HoldfastError, type RuntimeOptions } from "holdfast";
import { type Driver, faulty, type Runtime, type Span, type Storage } from "holdfast/internals";
import { type DeviceInfo, type HostMemory, interceptCalls, type MemoryInfo } from "../../src/driver/index.js";
import type { OomCause, OomDiagnosis } from "../../src/runtime/index.js";
import { StepAllocator } from "../../src/runtime/memory/step-allocator.js";
import { bytes, GiB, KiB, MiB } from "../../src/units/index.js";
import { CallLog } from "../support/call-log.js";
import { effort } from "../support/effort.js";
import { fakeHost } from "../support/fake-host.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { withCpuRuntime, withRuntime } from "../support/runtimes.js";

/** The error of a call. */
function rejectionOf(call: () => unknown): HoldfastError {
  try {
    call();
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  return assert.fail("nothing was rejected");
}

/** Calls until it is rejected, at most two hundred times, and returns the error. */
function rejectionAfterSome(call: () => unknown): HoldfastError {
  return rejectionOf(() => {
    for (let times = 0; times < 200; times++) call();
  });
}

/** A way to run out of memory, the expected cause, and what the message must show. */
interface Pressed {
  readonly options: RuntimeOptions;
  readonly press: (runtime: Runtime) => HoldfastError;
  readonly cause: OomCause;
  readonly shows: readonly RegExp[];
}

const pressures: Readonly<Record<string, Pressed>> = {
  "a 48 KB output overflows a small arena on the first sample": {
    options: { memory: "64MiB", arena: "64KiB" },
    press: (runtime) =>
      runtime.step(() => {
        runtime.arena.allocate(20 * KiB, "input");
        runtime.arena.allocate(1 * KiB, "labels");
        return rejectionOf(() => runtime.arena.allocate(48 * KiB, "output"));
      }),
    cause: "mis-sized",
    shows: [
      /^output asked the arena for 48 KiB, but the arena is full/,
      /capacity 64 KiB, committed 64 KiB, offset 21 KiB/,
      /this step: 2 allocations, 21 KiB; 0 resets in total/,
      /· input 20 KiB in 1\n {2}· labels 1 KiB in 1\n/,
      /Raise HOLDFAST_ARENA/,
    ],
  },
  "128 batches without a reset": {
    options: { memory: "64MiB", arena: "4MiB" },
    press: (runtime) =>
      rejectionAfterSome(() => {
        runtime.arena.allocate(24 * KiB, "hidden");
        runtime.arena.allocate(8 * KiB, "logits");
      }),
    cause: "never reset",
    shows: [
      /capacity 4 MiB, committed 4 MiB, offset 4 MiB/,
      /this step: 256 allocations, 4 MiB; 0 resets in total/,
      /· hidden 3 MiB in 128\n {2}· logits 1 MiB in 128\n/,
      /Run each batch inside step\(\)/,
    ],
  },
  "a step that needs more than is available": {
    options: { memory: "4MiB", arena: "4MiB", staging: "64KiB" },
    press: (runtime) => {
      runtime.step(() => runtime.arena.allocate(4 * KiB, "input"));
      return runtime.step(() => {
        runtime.arena.allocate(256 * KiB, "input");
        return rejectionAfterSome(() => runtime.arena.allocate(1 * MiB, "activations"));
      });
    },
    cause: "truly full",
    shows: [
      /capacity 4 MiB, committed \S+ MiB, offset 3.25 MiB/,
      /this step: 4 allocations, 3.25 MiB; 1 resets in total \(1 by steps, 0 by calls\)/,
      /· activations 3 MiB in 3\n {2}· input 256 KiB in 1\n/,
      /Use a smaller batch. Raise HOLDFAST_MEMORY/,
    ],
  },
};

type Injection = (run: () => void) => void;

/** A diagnosis that gives one answer for everything. */
function withCause(cause: OomCause, run: () => void): void {
  const diagnosis: OomDiagnosis = { cause, why: "it is what it is", help: "Buy more memory." };
  withMethods(StepAllocator.prototype, { diagnoseOom: () => diagnosis }, run);
}

for (const [situation, { options, press, cause, shows }] of Object.entries(pressures)) {
  const usualAnswer = cause === "truly full" ? "mis-sized" : "truly full";
  regressionRow<Injection>({
    row: "H9",
    rule: `${situation}: "${cause}", with the figures and the top holders, reported once before it is thrown`,
    sound: (run) => run(),
    faults: {
      [`${situation}, with "${usualAnswer}" as the only answer`]: (run) => withCause(usualAnswer, run),
    },
    check: (inject) =>
      inject(() => {
        const printed: string[] = [];
        // A GPU commits at least 2 MiB, more than these arenas have.
        withCpuRuntime({ ...options, print: (text) => printed.push(text) }, ({ runtime }) => {
          const rejection = press(runtime);
          assert.equal(rejection.numbers["cause"], cause);
          for (const pattern of shows) assert.match(rejection.message, pattern);
          assert.deepEqual(press(runtime).code, rejection.code, "the second rejection");
        });
        assert.equal(printed.filter((text) => text.includes("memory under pressure")).length, 1);
      }),
  });
}

/** How memory is requested from the arena. */
type Allocate = (runtime: Runtime, driver: Driver, size: number, label: string) => Storage;

const insideTheBudget: Allocate = (runtime, _driver, size, label) => runtime.arena.allocate(size, label);

/** The old way: memory that the arena rejects is allocated from the driver, without accounting. */
const byOverflow: Allocate = (runtime, driver, size, label) => {
  try {
    return runtime.arena.allocate(size, label);
  } catch {
    const span = driver.reserve(bytes(size));
    driver.commit(span);
    return { kind: "step", span, generation: 0, label, home: driver, owner: undefined };
  }
};

/** All bytes that the driver ever allocated, on the device and pinned on the host. */
function everTaken(log: CallLog): number {
  const sizes = log.calls.map(({ call, args, hasReturned }): number => {
    if (!hasReturned) return 0;
    if (call === "commit") return (args[0] as Span).size;
    return call === "allocateHost" ? (args[0] as HostMemory["size"]) : 0;
  });
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** A rejection asks the driver for its free memory and, at most, once for more. */
const maxCallsOfARejection = 4;

interface OutOfMemory {
  readonly code: ErrorCode;
  readonly script: readonly string[];
  /** True if there is memory to grow into after the rejection. */
  readonly isPassing: boolean;
}

function checkRejectionWithoutTrace(allocate: Allocate, { code, script, isPassing }: OutOfMemory): void {
  const log = new CallLog();
  let driver: Driver | undefined;
  const wrap = (device: Driver): Driver => {
    driver = faulty(log.wrap(device), script);
    return driver;
  };
  withRuntime(
    { memory: "16MiB", arena: "16MiB", staging: "1MiB" },
    ({ runtime }) => {
      const allocateNext = (): Storage => allocate(runtime, driver!, 1 * MiB, "activations");
      const state = () => ({ ...runtime.arena.figures, used: runtime.budget.used });
      runtime.step(() => {
        let last = allocateNext();
        let before = state();
        let callsBefore = 0;
        const rejection = rejectionAfterSome(() => {
          before = state();
          callsBefore = log.calls.length;
          last = allocateNext();
        });
        assert.equal(rejection.code, code);
        assert.deepEqual(state(), before, "a rejection has no side effects");
        assert.ok(log.calls.length - callsBefore <= maxCallsOfARejection, "a rejection takes a bounded time");

        runtime.arena.free(last);
        assert.equal(allocateNext().span.address, last.span.address, "freed memory is allocated again");
        if (isPassing) allocateNext();
      });
      assert.ok(everTaken(log) <= runtime.budget.limit, `${everTaken(log)} bytes were allocated`);
      assert.equal(runtime.budget.used, everTaken(log));
    },
    wrap,
  );
}

regressionRow<Allocate>({
  row: "H10",
  rule: "an exhausted budget is an error without side effects, and nothing is allocated outside it",
  sound: insideTheBudget,
  faults: { "an overflow path past the budget": byOverflow },
  check: (allocate) =>
    checkRejectionWithoutTrace(allocate, { code: "OUT_OF_BUDGET", script: [], isPassing: false }),
});

regressionRow<Allocate>({
  row: "H10",
  rule: "a device that rejects the arena's growth is an error without side effects",
  sound: insideTheBudget,
  faults: { "an overflow path past the rejection": byOverflow },
  check: (allocate) =>
    checkRejectionWithoutTrace(allocate, {
      code: "OUT_OF_MEMORY",
      script: ["the 3rd commit fails with out-of-memory"],
      isPassing: true,
    }),
});

const steps = effort({ quick: 500, thorough: 10_000 });
const allocationsAStep = 500;

regressionRow<(runtime: Runtime, body: () => void) => void>({
  row: "H11",
  rule: "over many steps of 500 allocations, committed memory is constant from the second on: the step scope resets",
  sound: (runtime, body) => runtime.step(body),
  faults: { "a loop without a step scope": (_runtime, body) => body() },
  check: (runBatch) =>
    withRuntime(
      { memory: "256MiB", arena: "128MiB", staging: "1MiB" },
      ({ runtime }) => {
        const { arena } = runtime;
        let committed = 0;
        for (let step = 1; step <= steps; step++) {
          runBatch(runtime, () => {
            for (let index = 0; index < allocationsAStep; index++) {
              // The same sizes in every step, and each step begins with a different one.
              arena.allocate(1 + 97 * ((step + index) % allocationsAStep), "activation");
            }
          });
          if (step === 2) committed = arena.figures.committed;
          if (step > 2) assert.equal(arena.figures.committed, committed, `committed after step ${step}`);
        }
        const { resetsByStep, resetsDrivenBy, allocations, live } = runtime.diagnostics().arena;
        assert.deepEqual(
          { resetsByStep, resetsDrivenBy, allocations, live },
          {
            resetsByStep: steps,
            resetsDrivenBy: "a step scope",
            allocations: steps * allocationsAStep,
            live: 0,
          },
        );
      },
      (device) => device,
    ),
});

/** A machine: the memory figures of its kernel and of its driver. */
interface Machine {
  readonly totalGiB: number;
  readonly availableGiB: number;
  readonly driverFreeGiB: number;
}

/** How the runtime classifies the machine: the old fault believed the driver, as on a discrete card. */
type MemoryKind = DeviceInfo["memory"];

interface OnMachine {
  readonly open: (options: RuntimeOptions, look: (runtime: Runtime) => void) => void;
  /** Changes the available memory of the machine's kernel. */
  readonly tell: (availableBytes: number) => void;
  readonly log: CallLog;
}

/** Lets `use` open runtimes on such a machine. */
function withMachine(machine: Machine, kind: MemoryKind, use: (on: OnMachine) => void): void {
  const total = machine.totalGiB * GiB;
  const host = fakeHost(total, machine.availableGiB * GiB);
  const figures: MemoryInfo = { total: bytes(total), free: bytes(machine.driverFreeGiB * GiB) };
  const log = new CallLog();
  const wrap = (device: Driver): Driver =>
    interceptCalls(log.wrap(device), (call, _args, proceed) => {
      if (call === "memory") return figures;
      return call === "describe" ? { ...(proceed() as DeviceInfo), memory: kind } : proceed();
    });
  const open: OnMachine["open"] = (options, look) =>
    withRuntime({ hostRoot: host.root, ...options }, ({ runtime }) => look(runtime), wrap);
  try {
    use({ open, tell: (availableBytes) => host.set(total, availableBytes), log });
  } finally {
    host.remove();
  }
}

regressionRow<MemoryKind>({
  row: "H12",
  rule: "on unified memory the budget is MemAvailable minus max(8 GiB, 10 %), whatever the driver reports as free",
  sound: "unified",
  faults: { "the driver's figure is believed": "discrete" },
  check: (kind) => {
    const large = { totalGiB: 120, availableGiB: 100, driverFreeGiB: 20 };
    withMachine(large, kind, ({ open }) => {
      open({}, (runtime) => assert.equal(runtime.budget.limit, (100 - 12) * GiB));
      open({ memory: "88GiB" }, (runtime) => assert.equal(runtime.budget.limit, 88 * GiB));
    });
    const small = { totalGiB: 16, availableGiB: 12, driverFreeGiB: 3 };
    withMachine(small, kind, ({ open }) =>
      open({}, (runtime) => assert.equal(runtime.budget.limit, (12 - 8) * GiB)),
    );
  },
});

regressionRow<MemoryKind>({
  row: "H12",
  rule: "on unified memory a budget that would take the host's share is rejected at the start",
  sound: "unified",
  faults: { "the driver reports the host's share as free, and is believed": "discrete" },
  check: (kind) =>
    withMachine({ totalGiB: 120, availableGiB: 100, driverFreeGiB: 110 }, kind, ({ open, log }) => {
      const rejection = rejectionOf(() => open({ memory: "90GiB" }, () => undefined));
      assert.equal(rejection.code, "OUT_OF_BUDGET");
      assert.match(rejection.message, /asks for 90 GiB, but at most 88 GiB is available/);
      assert.equal(log.count("reserve") + log.count("allocateHost"), 0);
    }),
});

regressionRow<MemoryKind>({
  row: "H12",
  rule: "on unified memory growth is rejected without a driver call once the host runs short",
  sound: "unified",
  faults: { "the driver still reports it as free, and is believed": "discrete" },
  check: (kind) =>
    withMachine({ totalGiB: 16, availableGiB: 12, driverFreeGiB: 12 }, kind, ({ open, tell, log }) =>
      open({ memory: "1GiB", staging: "1MiB" }, (runtime) =>
        runtime.step(() => {
          const first = runtime.arena.allocate(1 * MiB, "activations");
          const commits = log.count("commit");
          tell(8 * GiB + 1 * MiB);
          const rejection = rejectionOf(() => runtime.arena.allocate(32 * MiB, "attention scores"));
          assert.equal(rejection.code, "OUT_OF_BUDGET");
          assert.match(rejection.message, /only 1 MiB is available on this machine/);
          assert.equal(log.count("commit"), commits);
          assert.ok(runtime.arena.isLive(first));

          tell(12 * GiB);
          runtime.arena.allocate(32 * MiB, "attention scores");
        }),
      ),
    ),
});
