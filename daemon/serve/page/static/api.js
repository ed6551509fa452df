// The page's data, fetched with a time limit; errors carry what the server said.

const LIMIT_MS = 8000;

export class Refused extends Error {
  constructor(status, told) {
    super(told.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = told.code ?? "";
  }
}

/** GET /v1/page/NAME with parameters; null and undefined ones are left out. */
export async function get(name, parameters = {}, limit = LIMIT_MS) {
  const known = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(known).toString();
  const answer = await fetch(`/v1/page/${name}${query ? `?${query}` : ""}`, { signal: AbortSignal.timeout(limit) });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.error ?? {});
  return body;
}

export const imageOf = (id) => `/v1/page/image?id=${encodeURIComponent(id)}`;

/** Call `job` at once and `seconds` after each end, while the page can be seen; `ended` hears of each result. */
export function repeat(seconds, job, ended) {
  let timer = 0;
  const turn = async () => {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        await job();
        ended(null);
      } catch (error) {
        ended(error);
      }
    }
    timer = setTimeout(turn, seconds * 1000);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  turn();
}
