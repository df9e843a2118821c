/** The autocast region that a device is in: host state, which compiled steps guard and recomputations restore. */

import { beforeChange, type GuardedField, stateChanged, tracing } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";

/** A dtype in which a region computes matrix products. */
export type AutocastDtype = "bf16" | "f16";

/** The region that a device is in. Undefined: none. */
export class AutocastMode {
  dtype: AutocastDtype | undefined;
}

const dtypeField: GuardedField<AutocastMode> = {
  read: (mode) => mode.dtype,
  write: (mode, dtype) => {
    mode.dtype = dtype as AutocastDtype | undefined;
  },
};
const modeName = (): string => "autocast() around the call";

/** The dtype of the region that a device is in; undefined outside of all. */
export function dtypeOfRegion(mode: AutocastMode): AutocastDtype | undefined {
  tracing.guards?.noteRead(mode, dtypeField, mode.dtype, modeName);
  return mode.dtype;
}

function set(mode: AutocastMode, dtype: AutocastDtype | undefined): void {
  beforeChange(mode, dtypeField);
  mode.dtype = dtype;
  stateChanged();
}

/** Runs a function in a region. */
export function inRegion<T>(mode: AutocastMode, dtype: AutocastDtype | undefined, body: () => T): T {
  const outer = dtypeOfRegion(mode);
  if (outer === dtype) return requireSync(body());
  tracing.guards?.noteWrite(mode, dtypeField, dtype, modeName);
  set(mode, dtype);
  try {
    return requireSync(body());
  } finally {
    set(mode, outer);
    tracing.guards?.noteRestored(mode, dtypeField);
  }
}

function requireSync<T>(result: T): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "autocast got an async function: the region would end before the function has. Await outside autocast().",
  );
}
