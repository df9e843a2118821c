/**
 * H9 for compiled steps: a plan that does not fit is rejected with its size and the figures, and nothing of
 * it stays allocated.
 */

import assert from "node:assert/strict";
import { Device, type DeviceOptions, type HoldfastError, nn, type Tensor, zeros } from "holdfast";
import { PersistentMemory } from "../../src/runtime/index.js";
import { MiB } from "../../src/units/index.js";
import { CallLog } from "../support/call-log.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { withMethods } from "../support/replaced-methods.js";
import { openTestCpu, testEnvironment } from "../support/test-device.js";

const [features, width] = [16, 512] as const;

type Injection = (run: () => void) => void;

const noInjection: Injection = (run) => run();

/** The memory placed for the step's inputs is leaked. */
const leavingInputs: Injection = (run) =>
  withMethods(PersistentMemory.prototype, { release: () => undefined }, run);

/** What prevents the plan, and what the error must say. */
interface Obstacle {
  readonly options: DeviceOptions;
  /** By a data set on the device. */
  readonly heldBytes: number;
  readonly code: HoldfastError["code"];
  readonly says: readonly RegExp[];
  readonly faults: Readonly<Record<string, Injection>>;
}

const obstacles: Readonly<Record<string, Obstacle>> = {
  "the budget": {
    options: { memory: "144MiB", arena: "128MiB", staging: "64KiB" },
    heldBytes: 64 * MiB,
    code: "OUT_OF_BUDGET",
    says: [
      /^Compiled train step needs \S+ MiB of step memory at once for inputs f32 \[16384, 16\]/,
      /· data set +64 MiB/,
      /· linear \S+ MiB in \d/,
      /a batch of about \d+ instead of 16384 should fit; use bf16/,
    ],
    faults: { "too large for the budget, and the inputs' memory stays": leavingInputs },
  },
  "the arena": {
    options: { memory: "256MiB", arena: "8MiB" },
    heldBytes: 4 * MiB,
    code: "OUT_OF_BUDGET",
    says: [
      /^Compiled train step needs \S+ MiB of step memory at once for inputs f32 \[16384, 16\], but only \S+ MiB is available/,
      /· linear \S+ MiB in \d/,
      /a batch of about \d+ instead of 16384 should fit; .*raise HOLDFAST_ARENA/,
    ],
    faults: { "too large for the arena, and the inputs' memory stays": leavingInputs },
  },
};

for (const [name, { options, heldBytes, code, says, faults }] of Object.entries(obstacles)) {
  regressionRow<Injection>({
    row: "H9",
    rule: `a plan too large for ${name} is rejected before any memory is allocated for it, with its size and a remedy, and leaves nothing`,
    sound: noInjection,
    faults,
    check(inject) {
      const log = new CallLog();
      const driver = openTestCpu();
      const device = new Device("cpu", {
        ...{ stallAfter: "off", environment: testEnvironment, print: () => {}, ...options },
        driver: log.wrap(driver),
      });
      try {
        device.runtime.persistent.place("data set", "resident rows", [{ name: "rows", size: heldBytes }]);
        const model = new nn.Sequential(
          new nn.Linear(features, width),
          new nn.GELU(),
          new nn.Linear(width, 1),
        ).to(device);
        const step = device.compile(
          (x: Tensor) => {
            model.zeroGrad();
            model.forward(x).square().mean().backward();
          },
          { name: "train step" },
        );
        // Small first: resources that are created once, such as gradients, then exist.
        step(zeros([4, features], { device }));
        const x = zeros([16 * 1024, features], { device }); // [B, F], its first layer is 32 MiB
        device.keep(x);
        const look = () => ({
          used: device.runtime.budget.used,
          live: device.runtime.arena.figures.live,
          pins: device.runtime.arena.figures.pins,
          committed: device.runtime.arena.figures.committed,
        });
        const before = look();
        const launches = log.countKernels();
        let rejection: HoldfastError | undefined;
        inject(() => {
          rejection = rejectionOf(() => step(x));
        });
        assert.equal(rejection?.code, code, rejection?.message);
        for (const pattern of says) assert.match(rejection.message, pattern);
        assert.deepEqual(look(), before, "something of it stays allocated");
        assert.ok(log.countKernels() - launches <= 1, "the copy of its input, and no work");
        assert.equal(step.plans, 1);
        step(zeros([4, features], { device }));
      } finally {
        device.close();
        driver.close();
      }
    },
  });
}
