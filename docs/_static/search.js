/* Sphinx takes the snippet of a search result from the anchor of the result. That of an index entry is empty or a
   single sentence: take the snippet from the page then. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const textOf = Search.htmlToText;
  Search.htmlToText = (page, anchor) => {
    const text = textOf(page, anchor);
    return text.trim().length > 150 ? text : textOf(page);
  };
});
