/**
 * Translates records of 0.1.0 to the current field names and words. Readers call it on every record; a current record passes
 * unchanged.
 */

import type { JsonRecord } from "../../records/index.js";
import { isRecord } from "../files/json.js";

/** Kinds of calls in 0.1.0, and the current words. The kinds that are not listed kept their names. */
const callKinds: ReadonlyMap<unknown, string> = new Map([
  ["rows", "row"],
  ["beside", "combo"],
  ["columns", "column"],
  ["reductions", "grouped-reduce"],
  ["begun", "partial-reduce"],
  ["product", "gemm"],
  ["products", "grouped-gemm"],
  ["finished", "gemm-epilogue"],
]);

/** Passes of 0.1.0, and the current names of the stages. */
const stageNames: ReadonlyMap<unknown, string> = new Map([
  ["common", "cse"],
  ["copies", "copyPropagation"],
  ["dead", "dce"],
  ["casts", "coalesceCasts"],
  ["attention", "attentionCasts"],
  ["recompute", "rematerialize"],
  ["afresh", "renameBuffers"],
  ["apart", "hoistOutputs"],
  ["fuse", "verticalFusion"],
  ["turned", "pretransposeWeights"],
  ["finish", "gemmEpilogues"],
  ["narrow", "bf16Activations"],
  ["sums", "columnReductions"],
  ["alike", "batchCopies"],
  ["together", "groupGemms"],
  ["reductions", "groupReductions"],
  ["early", "splitReductions"],
  ["beside", "comboKernels"],
  ["products", "gemmAlgorithms"],
]);

/** A plan of 0.1.0 has `isRefused`, and its calls have `part` and `branch`. */
export function toCurrentPlan(record: JsonRecord): JsonRecord {
  if (!("isRefused" in record)) return record;
  const { isRefused, stages, calls, ...rest } = record;
  return {
    ...rest,
    isRejected: isRefused,
    stages: Array.isArray(stages) ? stages.map(toCurrentStage) : stages,
    calls: Array.isArray(calls) ? calls.map(toCurrentCall) : calls,
  };
}

function toCurrentStage(stage: unknown): unknown {
  if (!isRecord(stage)) return stage;
  const { name } = stage;
  return { ...stage, name: stageNames.get(name) ?? name };
}

function toCurrentCall(call: unknown): unknown {
  if (!isRecord(call)) return call;
  const { part, branch, kind, ...rest } = call;
  return { ...rest, kind: callKinds.get(kind) ?? kind, phase: part, stream: branch };
}

export function toCurrentIncident(record: JsonRecord): JsonRecord {
  return record["kind"] === "capture refused" ? { ...record, kind: "capture rejected" } : record;
}
