/** The closed table of exit codes: what the end of a Holdfast process tells the script that started it. */

export const exitCodes = {
  ok: {
    code: 0,
    meaning: "What was asked for was done.",
  },
  failed: {
    code: 1,
    meaning: "An error ended the run; its code and message stand on stderr.",
  },
  usage: {
    code: 2,
    meaning: "The command line was wrong; nothing was started.",
  },
  stopped: {
    code: 3,
    meaning: "A signal ended the run before its end; what it had done is kept.",
  },
  stalled: {
    code: 86,
    meaning: "The watchdog ended a run that stood still; the stall report stands on stderr and in a file.",
  },
} as const satisfies Record<string, { readonly code: number; readonly meaning: string }>;

export type ExitName = keyof typeof exitCodes;
