/** temporary */
import type { Call, Plan, Schedule } from "./program.js";
export function verifyPlan(_c: readonly Call[], _s: Schedule, _p: Plan): void {}
