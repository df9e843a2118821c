/** The incidents, newest first, each with the phases before it. */

import { runPath, useFetched } from "../server.js";
import { formatCount, formatTime } from "../tables/format.js";
import type { IncidentRecord, RunDetail } from "../wire.js";

/** The meaning of each kind, and what to do. */
const meanings: Readonly<Record<IncidentRecord["kind"], string>> = {
  stall: "A call made no progress within its limit. The report names the call, its target and its start.",
  "capture rejected":
    "The step could not become one graph launch, so it runs call by call: slower, with the same results.",
  "over budget": "An allocation exceeded the memory budget. The table lists the holders.",
  "steps not finite":
    "A loss or a gradient was NaN or infinite. A lower learning rate or gradient clipping usually helps.",
  failure: "The run ended with an error.",
};

export function IncidentsView({ detail }: { readonly detail: RunDetail }) {
  const newestFirst = [...detail.incidents].sort((a, b) => b.time - a.time);
  return (
    <div class="incidents">
      {newestFirst.length === 0 ? (
        <p class="empty large">
          No incidents. Stalls, rejected captures, allocations over the budget, steps that are not finite and
          failures are listed here, with the phases before them.
        </p>
      ) : null}
      {newestFirst.map((record, index) => (
        <IncidentCard key={`${record.time}-${index}`} record={record} />
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
            {phases.length === 1
              ? "The phase before it"
              : `The ${formatCount(phases.length)} phases before it`}
          </summary>
          <ol class="phases">
            {phases.map((phase, index) => (
              <li key={`${index}-${phase}`}>{phase}</li>
            ))}
          </ol>
        </details>
      ) : null}
    </article>
  );
}

function Phases({ run }: { readonly run: string }) {
  const { answer } = useFetched<readonly string[]>(runPath(run, "/phases"));
  if (!answer || answer.length === 0) return null;
  return (
    <details class="figure">
      <summary>Last lines of the recorder's log ({formatCount(answer.length)})</summary>
      <pre class="text">{answer.join("\n")}</pre>
    </details>
  );
}
