//! The documentation as a site: the pages that `docs/SUMMARY.md` lists, built by mdBook, with every link followed.
//!
//! Pages link to each other, and to files beside them, as they lie in the repository. So they are copied as they lie, with what they
//! link to, and the site has the same paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Builds the site in this directory. Returns its first page.
pub(crate) fn build(mdbook: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let source = directory.join("src");
    let summary = fs::read_to_string(SUMMARY)?;
    for page in links(&summary) {
        let page = resolved(Path::new(SUMMARY), &page);
        copy(&page, &source)?;
        for file in links(&fs::read_to_string(&page)?) {
            let file = resolved(&page, &file);
            if file.extension().is_none_or(|kind| kind != "md") {
                copy(&file, &source)?;
            }
        }
    }
    fs::write(source.join("SUMMARY.md"), from_root(&summary))?;
    for file in ["book.toml", "book.css"] {
        fs::copy(Path::new("docs").join(file), directory.join(file))?;
    }
    crate::run("documentation as a site", {
        let mut build = Command::new(mdbook);
        build.arg("build").arg(directory).env("MDBOOK_LOG", "warn");
        build
    })?;
    let site = directory.join("book");
    let broken = broken_links(&site)?;
    ensure!(broken.is_empty(), "links of the site that lead nowhere:\n{}", broken.join("\n"));
    Ok(site.join("index.html"))
}

/// The relative links of a page in Markdown, without their headings.
fn links(text: &str) -> Vec<String> {
    // A link may be broken over two lines.
    let text = text.replace('\n', " ");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    links.filter(|link| !link.is_empty() && !link.contains("://")).map(str::to_owned).collect()
}

/// A link of a page, from the root of the repository.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

fn copy(file: &Path, source: &Path) -> anyhow::Result<()> {
    let target = source.join(file);
    fs::create_dir_all(target.parent().context("a file in no directory")?)?;
    fs::copy(file, target).with_context(|| format!("cannot copy `{}`", file.display()))?;
    Ok(())
}

/// The summary, with its links from the root of the repository.
fn from_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        format!("{text}]({}){rest}", resolved(Path::new(SUMMARY), link).display())
    })
}

/// Every link of the site to a file or a heading that is not there.
fn broken_links(site: &Path) -> anyhow::Result<Vec<String>> {
    let (mut broken, mut count) = (BTreeSet::new(), 0);
    for page in pages(site)? {
        // The page for links that do not exist can be shown at any path.
        if page.ends_with("404.html") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for link in attributes(&text, "href").chain(attributes(&text, "src")) {
            if link.contains(':') || link.is_empty() {
                continue;
            }
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().context("a page in no directory")?.join(file),
            };
            let is_there = target.is_file()
                && (heading.is_empty()
                    || fs::read_to_string(&target)?.contains(&format!("id=\"{heading}\"")));
            if !is_there {
                let page = page.strip_prefix(site)?.display();
                broken.insert(format!("{page}: {link}"));
            }
        }
    }
    ensure!(count > 1000, "only {count} links: are the pages there?");
    Ok(broken.into_iter().collect())
}

fn pages(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => pages.extend(self::pages(&path)?),
            false if path.extension().is_some_and(|kind| kind == "html") => pages.push(path),
            false => {}
        }
    }
    Ok(pages)
}

fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let starts: Vec<usize> = text.match_indices(&begin).map(|(at, it)| at + it.len()).collect();
    starts.into_iter().filter_map(move |at| text.get(at..)?.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_summary_are_written_from_the_root_of_the_repository() {
        let summary = "[Home](../README.md)\n- [Limits](limits.md)\n  - [One](errors/ONE.md)\n";
        let expected =
            "[Home](README.md)\n- [Limits](docs/limits.md)\n  - [One](docs/errors/ONE.md)\n";
        assert_eq!(from_root(summary), expected);
    }

    #[test]
    fn a_link_to_a_file_or_a_heading_that_is_not_there_is_found() -> anyhow::Result<()> {
        let site = env_temp();
        fs::create_dir_all(site.join("docs"))?;
        // Enough good links, so that the pages count as being there.
        let good = "<a href=\"docs/a.html#here\">".repeat(1001);
        let bad = "<a href=\"docs/b.html\"><a href=\"docs/a.html#there\"><img src=\"no.png\">";
        fs::write(site.join("index.html"), format!("{good}{bad}<a href=\"https://x\">"))?;
        fs::write(site.join("docs/a.html"), "<h1 id=\"here\">")?;
        let broken = broken_links(&site)?;
        fs::remove_dir_all(&site)?;
        let expected = ["docs/a.html#there", "docs/b.html", "no.png"];
        assert_eq!(broken, expected.map(|link| format!("index.html: {link}")));
        Ok(())
    }

    fn env_temp() -> PathBuf {
        std::env::temp_dir().join(format!("stepgate-book-{}", std::process::id()))
    }
}
