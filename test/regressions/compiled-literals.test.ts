/** S1: calls that differ only in a literal are not shared, whatever the literal. */

import assert from "node:assert/strict";
import { type Dtype, dtypes, type Tensor, tensor } from "holdfast";
import { traceStep } from "../../src/compile/index.js";
import { eliminateCommonCalls } from "../../src/compile/passes/cse.js";
import { literalKey } from "../../src/units/index.js";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { rewritten } from "../support/rewritten.js";
import { specialValues } from "../support/special-values.js";

const device = openDevice();
const floats = (Object.keys(dtypes) as Dtype[]).filter((dtype) => dtypes[dtype].kind === "float");

regressionRow<(value: unknown) => string>({
  row: "S1",
  rule: "x.mul(a) and x.mul(b) share one call only if a and b are the same number: every special value in every float dtype",
  sound: literalKey,
  faults: {
    "JSON, in which ±Infinity and NaN are null and -0 is 0": (value) => JSON.stringify(value),
    "text, in which -0 is 0": (value) =>
      JSON.stringify(value, (_, entry: unknown) => (typeof entry === "number" ? String(entry) : entry)),
  },
  check(keyOfLiterals) {
    for (const dtype of floats) {
      const x = tensor([1, 2, 3], { device, dtype });
      const { calls } = traceStep(device.runtime, () =>
        device.inTracedStep((): Tensor[] =>
          [...specialValues, ...specialValues].map((value) => x.mul(value)),
        ),
      );
      assert.equal(calls.length, 2 * specialValues.length);
      const left = rewritten(calls, (program) => eliminateCommonCalls(program, keyOfLiterals));
      assert.equal(left.length, specialValues.length, dtype);
    }
  },
});
