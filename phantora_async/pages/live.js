// What only a page of a run that lasts has: progress, and what ranks are doing.

function progress(view) { return null; }
function states(view) { return null; }
function liveBanner(live) { return null; }
function follow(page) {}
