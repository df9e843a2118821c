/** A run resumes only from a checkpoint of the same model, with settings that give the same result. */

import { test } from "node:test";
import { patternedCheckpoint } from "../../test/support/patterned-checkpoint.js";
import { rejects } from "../../test/support/rejects.js";
import { requireCompatible } from "./compatibility.js";

const saved = patternedCheckpoint(9, 4);
const savedTensors: [string, { dtype: string; shape: readonly number[] }][] = [...saved.tensors].filter(
  ([name]) => !name.startsWith("extra."),
);

test("the same model with the same settings is accepted, with any other contents of the checkpoint", () => {
  requireCompatible(saved, { model: "Patterned" });
  requireCompatible(saved, { model: "Patterned", tensors: new Map(savedTensors), settings: { lr: 0.001 } });
});

test("another model is rejected, and the error has both names", () => {
  rejects(
    "BAD_STATE",
    () => requireCompatible(saved, { model: "CrossAsset" }),
    /"Patterned".*trains "CrossAsset"/,
  );
  const nameless = { ...saved, state: {} };
  rejects("BAD_STATE", () => requireCompatible(nameless, { model: "CrossAsset" }), /model null/);
});

test("other names, shapes and dtypes of tensors are rejected, each by name, on one line", () => {
  const fit = (tensors: Map<string, { dtype: string; shape: readonly number[] }>) => () =>
    requireCompatible(saved, { model: "Patterned", tensors });
  const [weight] = savedTensors;
  rejects("BAD_STATE", fit(new Map([weight!])), /optimizer\.0\.step is only in the checkpoint/);
  rejects(
    "BAD_STATE",
    fit(new Map([...savedTensors, ["model.bias", { dtype: "f32", shape: [2] }]])),
    /^[^\n]*model\.bias is not in the checkpoint[^\n]*$/,
  );
  for (const [dtype, shape] of [
    ["f32", [5]],
    ["bf16", [4]],
  ] as const) {
    const changed = new Map([...savedTensors, ["model.weight", { dtype, shape }] as const]);
    rejects(
      "BAD_STATE",
      fit(changed),
      /model\.weight is f32 \[4\] in the checkpoint and (f32 \[5\]|bf16 \[4\]) in this run/,
    );
  }
});

test("many mismatches are counted, and only the first are listed", () => {
  const many = Array.from(
    { length: 50 },
    (_, index) => [`model.${index}`, { dtype: "f32", shape: [] }] as const,
  );
  const fit = () =>
    requireCompatible(saved, { model: "Patterned", tensors: new Map([...savedTensors, ...many]) });
  rejects("BAD_STATE", fit, /model\.3 is not in the checkpoint; and 46 more/);
});

test("other settings are rejected with their old and new values", () => {
  const fit = (settings: Record<string, unknown>) => () =>
    requireCompatible(saved, { model: "Patterned", settings });
  rejects(
    "BAD_SETTING",
    fit({ lr: 0.01, batch: 256 }),
    /made with other settings: lr was 0\.001 and is now 0\.01\. /,
  );
  rejects("BAD_SETTING", fit({ precision: "tf32" }), /precision was not set and is now "tf32"/);
  rejects(
    "BAD_SETTING",
    fit({ blas: "BLIS" }),
    /blas was not set and is now "BLIS"\. .*HOLDFAST_BLAS names the/,
  );
});
