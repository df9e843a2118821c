/** What went wrong, the newest first, each with the phases up to it. */

import { formatCount, formatTime } from "../tables/format.js";
import { runPath, useAnswer } from "../server.js";
import type { RunDetail, IncidentRecord } from "../wire.js";

/** What each kind means, and what to do. */
const meanings: Readonly<Record<IncidentRecord["kind"], string>> = {
  stall: "A call stood still for longer than it may. The report says which, on what, and since when.",
  "capture rejected":
    "The step could not become one graph launch, so it runs call by call: slower, with the same results.",
  "over budget": "Memory was asked for that the budget does not have. The table says who holds it.",
  "steps not finite":
    "A loss or a gradient was not a number, or had no end. A lower learning rate or clipping helps most often.",
  failure: "The run ended with an error.",
};

export function IncidentsView({ detail }: { readonly detail: RunDetail }) {
  const newestFirst = [...detail.incidents].sort((a, b) => b.time - a.time);
  return (
    <div class="incidents">
      {newestFirst.length === 0 ? (
        <p class="empty large">
          No incidents. Stalls, rejected captures, requests over the budget, steps that are not finite and
          failures would stand here, with what the run was doing.
        </p>
      ) : null}
      {newestFirst.map((record, place) => (
        <IncidentCard key={`${record.time}-${place}`} record={record} />
      ))}
      <Phases run={detail.name} />
    </div>
  );
}

function IncidentCard({ record }: { readonly record: IncidentRecord }) {
  const { kind, time, step, message, details, phases } = record;
  return (
    <article class="figure incident-card" aria-label={`${kind} at step ${step}`}>
      <header>
        <h2>
          <span class={`kind ${kind.replaceAll(" ", "-")}`}>{kind}</span>
        </h2>
        <p class="quiet">
          step {formatCount(step)} · {formatTime(time)}
        </p>
      </header>
      <p class="message">{message}</p>
      <p class="caption">{meanings[kind] ?? ""}</p>
      {details ? (
        <details open={details.length < 3000}>
          <summary>Details</summary>
          <pre class="text">{details}</pre>
        </details>
      ) : null}
      {phases.length > 0 ? (
        <details open={phases.length <= 12}>
          <summary>
            {phases.length === 1 ? "The phase up to it" : `The ${formatCount(phases.length)} phases up to it`}
          </summary>
          <ol class="phases">
            {phases.map((phase, place) => (
              <li key={`${place}-${phase}`}>{phase}</li>
            ))}
          </ol>
        </details>
      ) : null}
    </article>
  );
}

function Phases({ run }: { readonly run: string }) {
  const { answer } = useAnswer<readonly string[]>(runPath(run, "/phases"));
  if (!answer || answer.length === 0) return null;
  return (
    <details class="figure">
      <summary>What the recorder noted last, line by line ({formatCount(answer.length)})</summary>
      <pre class="text">{answer.join("\n")}</pre>
    </details>
  );
}
