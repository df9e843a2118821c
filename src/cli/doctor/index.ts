/** doctor: `holdfast doctor`. What this machine has, and a training step tried on it, phase by phase. */

export { addDoctor, type Output, runDoctor } from "./command.js";
export type { DoctorOptions, DoctorReport } from "./doctor.js";
