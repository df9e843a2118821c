/**
 * The doctor on faulty machines, up to the update of the weights. Each fault is injected into the engine or its driver, and the
 * doctor must name the phase and the fault.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { failsIn, firstByteOf } from "../../../test/support/faulty-machine.js";
import { withMethods } from "../../../test/support/replaced-methods.js";
import { type Driver, interceptCalls, type Launch, type Stream } from "../../driver/index.js";
import { ParameterGroup } from "../../optim/index.js";
import { Device } from "../../tensor/index.js";
import type { Span } from "../../units/index.js";

test("an upload that damages one byte is detected, with its position", () => {
  const damaging = (driver: Driver): Driver => {
    let large = 0;
    return interceptCalls(driver, (call, args, proceed) => {
      const result = proceed();
      if (call !== "copyToDevice") return result;
      const [stream, target] = args as [Stream, Span];
      // The weights are the first large copy; the rows are the second.
      if (target.size > 10_000) large += 1;
      if (large === 2) {
        large += 1;
        driver.fill(stream, firstByteOf(target), 0xaa);
      }
      return result;
    });
  };
  failsIn(
    "upload",
    /^The upload is damaged: byte 0 of row 0 was sent as \d+ and read back as 170\.$/,
    damaging,
  );
});

/** The change to a span that forward has written. */
type Overwriting = (driver: Driver, stream: Stream, span: Span) => void;

/** Overwrites the results of forward before backward starts, like an early arena reset and another step. */
function failsWhenOverwritten(overwrite: Overwriting, reason: RegExp): void {
  const written: Parameters<Overwriting>[] = [];
  const watching = (driver: Driver): Driver =>
    interceptCalls(driver, (call, args, proceed) => {
      if (call === "launch") {
        const [stream, { kernel, arguments: values }] = args as [Stream, Launch];
        for (const [index, value] of values.entries()) {
          const isWritten = kernel.parameters[index] === "out" || kernel.parameters[index] === "inout";
          // Small spans are labels and the loss: the injected fault leaves the loss correct.
          if (isWritten && typeof value === "object" && value.size > 1000)
            written.push([driver, stream, value]);
        }
      }
      return proceed();
    });
  const { backward } = Device.prototype;
  const overwriting: Partial<Device> = {
    backward(this: Device, ...args: Parameters<Device["backward"]>) {
      assert.notEqual(written.length, 0);
      for (const parts of written.splice(0)) overwrite(...parts);
      backward.apply(this, args);
    },
  };
  withMethods(Device.prototype, overwriting, () => failsIn("backward", reason, watching));
}

test("a backward pass over cleared memory is detected: its gradients are zero or not finite", () => {
  failsWhenOverwritten(
    (driver, stream, span) => driver.fill(stream, span, 0),
    /^(Every element of the gradient of ".*" is 0, and the loss is 1\.\d+|The gradient of ".*" is not finite)\.$/,
  );
});

test("a backward pass over other samples' values has plausible gradients, and is detected by the slope of the loss", () => {
  failsWhenOverwritten((driver, stream, { address, size }) => {
    const half = Math.floor(size / 8) * 4;
    const parts = [0, half].map((offset) => ({ address: address + offset, size: half }) as Span);
    driver.copyOnDevice(stream, parts[0]!, parts[1]!);
  }, /^The gradients are wrong: along them the loss of .* has a measured slope of [-\d.e]+, and the gradients predict [\d.e+]+\.$/);
});

test("an update that does not change the weights is detected", () => {
  withMethods(ParameterGroup.prototype, { step: () => undefined }, () =>
    failsIn("update", /^AdamW did not change ".*"\.$/),
  );
});
