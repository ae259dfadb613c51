//! Whether links lead somewhere: those of the documents in the repository, and those of the rendered documentation.

mod markdown;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{command, html};

/// The pages of the library's documentation.
const RENDERED: &str = "target/doc/leasehold";

/// Checks every relative link of the Markdown files that git tracks.
///
/// # Errors
///
/// With each link that leads nowhere.
pub(crate) fn check_documents() -> Result<(), String> {
    let files = command::output("git ls-files *.md **/*.md")?;
    let files = String::from_utf8_lossy(&files);
    let mut dead = Vec::new();
    let mut documents = Documents::default();
    let mut count = 0;
    // The packages have links to documents of the repository.
    for file in files.lines().map(Path::new).filter(|file| !file.is_symlink()) {
        let document = documents.get(file)?;
        let (links, undefined) = (document.links.clone(), document.undefined.clone());
        dead.extend(undefined.iter().map(|label| format!("{}: no definition of [{label}]", file.display())));
        for link in links.iter().filter(|link| !link.contains("://") && !link.contains("::")) {
            count += 1;
            if !documents.has(file, link)? {
                dead.push(format!("{}: {link}", file.display()));
            }
        }
    }
    println!("{count} links");
    report(&dead)
}

/// Checks every relative link of the rendered documentation of the library.
///
/// # Errors
///
/// With each link that leads nowhere.
pub(crate) fn check_rendered() -> Result<(), String> {
    let mut pages = Vec::new();
    collect(Path::new(RENDERED), &mut pages)?;
    let mut ids = BTreeMap::<PathBuf, BTreeSet<String>>::new();
    let (mut dead, mut count) = (BTreeSet::new(), 0);
    for page in &pages {
        let text = read(page)?;
        // What follows was written for the pages of other crates.
        let text = text.split("<h2 id=\"blanket-implementations\"").next().unwrap_or_default();
        for link in html::attributes(text, "href") {
            // `#` alone is a button.
            if link.contains(':') || link == "#" {
                continue;
            }
            count += 1;
            let (path, id) = link.split_once('#').map_or((link, None), |(path, id)| (path, Some(id)));
            let target = if path.is_empty() { page.clone() } else { resolve(page, path) };
            let mut found = target.is_file();
            // A page of source code marks its lines by a script.
            if let Some(id) = id
                && found
                && !target.starts_with("target/doc/src")
            {
                if !ids.contains_key(&target) {
                    let text = read(&target)?;
                    let known = html::attributes(&text, "id").into_iter().map(String::from);
                    ids.insert(target.clone(), known.collect());
                }
                found = ids[&target].contains(id);
            }
            if !found {
                dead.insert(format!("{}: {link}", page.display()));
            }
        }
    }
    println!("{count} links on {} pages", pages.len());
    report(&dead.into_iter().collect::<Vec<_>>())
}

/// The documents that were read.
#[derive(Default)]
struct Documents(BTreeMap<PathBuf, markdown::Document>);

impl Documents {
    fn get(&mut self, file: &Path) -> Result<&markdown::Document, String> {
        if !self.0.contains_key(file) {
            self.0.insert(file.into(), markdown::Document::read(&read(file)?));
        }
        Ok(&self.0[file])
    }

    /// Whether there is what a link in `file` leads to: a file or a folder, and the heading if it names one.
    fn has(&mut self, file: &Path, link: &str) -> Result<bool, String> {
        let (path, heading) = link.split_once('#').map_or((link, None), |(path, id)| (path, Some(id)));
        let target = if path.is_empty() { file.into() } else { resolve(file, path) };
        Ok(match heading {
            _ if !target.exists() => false,
            Some(heading) => self.get(&target)?.headings.contains(heading),
            None => true,
        })
    }
}

/// What a relative address in a file means.
fn resolve(file: &Path, address: &str) -> PathBuf {
    let mut path = file.parent().map(PathBuf::from).unwrap_or_default();
    for part in Path::new(address).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The HTML files below a folder.
fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn report(dead: &[String]) -> Result<(), String> {
    if dead.is_empty() { Ok(()) } else { Err(format!("links that lead nowhere:\n{}", dead.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_relative_to_the_folder_of_their_file() {
        assert_eq!(resolve(Path::new("docs/a.md"), "../README.md"), Path::new("README.md"));
        assert_eq!(resolve(Path::new("README.md"), "docs/a.md"), Path::new("docs/a.md"));
        assert_eq!(resolve(Path::new("docs/a.md"), "./b/c.md"), Path::new("docs/b/c.md"));
    }
}
