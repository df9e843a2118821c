/** doctor: `holdfast doctor`. Reports this machine's hardware and runs training steps on it, phase by phase. */

export { addDoctor, type Output, runDoctor } from "./command.js";
export type { DoctorOptions, DoctorReport } from "./doctor.js";
