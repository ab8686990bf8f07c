// A browser lets no page of a folder read other files, from which the search would take parts to show below its results.
if (window.location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
