//! The name of the lock: what it is made of, and when.

use leasehold::{Client, Error};

struct User {
    name: String,
}

struct Order {
    id: u32,
    user: User,
    size: (u8, u8),
}

fn order() -> Order {
    Order { id: 7, user: User { name: "ann".into() }, size: (3, 4) }
}

/// Whether the lock of this name is held, which only the function under it can do here.
async fn is_held(client: &Client, name: &str) -> Result<bool, Error> {
    Ok(client.lock(name).is_locked().await?)
}

#[tokio::test]
async fn a_name_is_made_of_parameters_and_of_their_fields() {
    #[leasehold::locked("{id:04}/{order.id}/{order.user.name}/{order.size.1}/{{{id}}}/{tag:?}/{ id }")]
    async fn placeholders(client: &Client, id: u32, order: &Order, tag: Option<u8>) -> Result<bool, Error> {
        assert_eq!((id, order.id, tag), (5, 7, Some(1)));
        is_held(client, "0005/7/ann/4/{5}/Some(1)/5").await
    }
    #[leasehold::locked("a {{b}}")]
    async fn escapes(client: &Client) -> Result<bool, Error> {
        is_held(client, "a {b}").await
    }
    #[leasehold::locked(r"raw\{id}")]
    async fn raw(client: &Client, id: &str) -> Result<bool, Error> {
        is_held(client, r"raw\x").await
    }
    #[leasehold::locked("{r#type}")]
    async fn raw_parameter(client: &Client, r#type: &str) -> Result<bool, Error> {
        is_held(client, r#type).await
    }
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(placeholders(&client, 5, &order(), Some(1)).await, Ok(true));
    assert_eq!(escapes(&client).await, Ok(true));
    assert_eq!(raw(&client, "x").await, Ok(true));
    assert_eq!(raw_parameter(&client, "kind").await, Ok(true));
}

#[tokio::test]
async fn a_name_is_made_of_the_variables_of_patterns() {
    #[leasehold::locked("{id}:{name}:{a}:{rest:?}")]
    async fn patterns(
        client: &Client,
        Order { id, user: User { name }, .. }: Order,
        [a, rest @ ..]: [u8; 3],
        (_, mut last): (u8, u8),
    ) -> Result<bool, Error> {
        last += 1;
        assert_eq!((last, a, rest), (3, 4, [5, 6]));
        is_held(client, &format!("{id}:{name}:4:[5, 6]")).await
    }
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(patterns(&client, order(), [4, 5, 6], (1, 2)).await, Ok(true));
}

struct Region {
    locks: Client,
    region: &'static str,
}

impl Region {
    #[leasehold::locked("{self.region}:{id}", client = self.locks)]
    async fn of_region(&self, id: u8) -> Result<bool, Error> {
        is_held(&self.locks, "eu:1").await
    }
}

#[tokio::test]
async fn a_name_is_made_of_fields_of_the_receiver() {
    let region = Region { locks: Client::connect("memory:").await.unwrap(), region: "eu" };
    assert_eq!(region.of_region(1).await, Ok(true));
}

#[tokio::test]
async fn own_371_the_name_is_made_before_the_body_moves_or_changes_its_parameters() {
    #[leasehold::locked("{name}:{number}")]
    async fn moves(client: &Client, name: String, mut number: u8) -> Result<bool, Error> {
        number += 1;
        let moved = name;
        is_held(client, &format!("{moved}:{}", number - 1)).await
    }
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(moves(&client, "x".into(), 3).await, Ok(true));
}

/// The parameter of a macro is another variable than one of the same name in front of it.
macro_rules! function_of_macro {
    ($name:ident, $given:ident, $text:literal) => {
        #[leasehold::locked($text)]
        async fn $name(client: &Client, $given: u8) -> Result<bool, Error> {
            let held = format!("macro:{}", $given);
            is_held(client, &held).await
        }
    };
}

function_of_macro!(of_macro, id, "macro:{id}");

#[tokio::test]
async fn a_function_that_a_macro_makes_has_its_name_too() {
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(of_macro(&client, 9).await, Ok(true));
}
