// Elements, made of data as text: nothing that comes from a stream is ever read as markup.

/** make("td", {class: "x", data: {label: "y"}}, "text", child, ...); children that are null are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "data") Object.assign(element.dataset, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const find = (id) => document.getElementById(id);

/** Replace the children only when `key` is another one than the last time: keeps focus, selection and scrolling. */
export function refill(host, key, build) {
  const text = JSON.stringify(key);
  if (host.dataset.key === text) return;
  host.dataset.key = text;
  host.replaceChildren(...build());
}

/** What stands where nothing can be shown yet: what will appear, and why it does not. */
export const empty = (text) => make("div", { class: "empty" }, make("p", {}, text));
