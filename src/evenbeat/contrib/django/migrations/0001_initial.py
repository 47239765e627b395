"""For Django's books only: Evenbeat migrates its tables itself."""

from django.db import migrations

from evenbeat.contrib.django.models import Job


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Job",
            fields=[(field.name, field.clone()) for field in Job._meta.local_fields],
            options={"managed": False, "db_table": Job._meta.db_table, "ordering": ("-id",)},
        ),
    )
